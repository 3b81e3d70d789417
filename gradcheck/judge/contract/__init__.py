"""Properties of a backward beyond its numbers, one module per kind.

Their list is `PROPERTIES` in `judge/contract_check.py`.
"""
