"""The text of a spec's VJP as a tape of operations, which can be replayed with some changed."""
