"""Other processes: code that is not ours runs there, and whatever it does is known here."""
