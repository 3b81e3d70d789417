"""What a backward owes beyond its numbers: one short module per property."""
