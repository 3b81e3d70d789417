"""Runs on file: what is written of them, and how they are read back."""
