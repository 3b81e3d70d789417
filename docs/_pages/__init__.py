"""Pages of the documentation that are made of the code: at build time, the same bytes each time."""
