"""A reference's own text, run once on a tape, and run again with one thing in it changed."""
