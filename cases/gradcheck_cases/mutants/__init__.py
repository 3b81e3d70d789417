"""Wrong backward passes, one module per operator family: what the suite's samples must reject."""
