"""Runs: what to judge, in which order, by how many processes, and what became of it.

In: a `Plan`. Out: a `Run` of results. `execute` is the way through; `workers` and `cluster` judge
the same units elsewhere.
"""
