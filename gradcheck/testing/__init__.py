"""Gradients in tests: what a test file says, what it is given, and what pytest makes of it."""
