"""Judges: a binding is probed, compared with the truth, and given a verdict.

In: a case and a binding. Out: findings, one per gradient. `contract` asks for what a backward owes
beyond its numbers.
"""
