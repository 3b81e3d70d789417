"""The rules by which a wrong gradient is named, one per module."""
