"""The same operators in other people's code, by framework."""
