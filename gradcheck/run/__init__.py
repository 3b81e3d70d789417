"""Runs: their options and plans, the loop over cases, worker processes and clusters.

In: a `Plan`. Out: a `Run` of results. `execute` is the loop; `workers` and `cluster` judge the same
cases in other processes.
"""
