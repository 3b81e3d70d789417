"""Judges: code is called, its gradients are compared with the true ones, and get a verdict.

In: a case and a binding, or functions and arrays. Out: findings, one per gradient. `contract` tests
the properties of a backward beside its numbers. Arrays are [q, n] (cotangents × elements of one
primal) or [q, m] (× elements of all outputs) unless a docstring says otherwise.
"""
