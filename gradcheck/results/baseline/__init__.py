"""Baselines: the failures that are known, with their reasons, and nothing else excused."""
