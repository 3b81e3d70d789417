"""A forward that nobody described, evaluated in big numbers: by NumPy's own protocols."""
