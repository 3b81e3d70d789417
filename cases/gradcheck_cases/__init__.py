"""The built-in conformance suite: one module per operator family."""
