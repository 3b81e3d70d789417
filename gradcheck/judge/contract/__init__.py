"""Properties of a backward beyond its numbers: one module per kind, listed in `battery`."""
