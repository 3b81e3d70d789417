"""A sharded model in many processes, and its check: seeds go out, scalars come back."""
