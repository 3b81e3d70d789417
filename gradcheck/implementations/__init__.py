"""Implementations: whose backward is judged, and how it is called on copies and watched.

In: a case of a suite. Out: a binding, whose calls return arrays or raise what the foreign code did.
Python, PyTorch and JAX are bound here; C by `native` and its `manifest`, any other language by
`protocol`; `processes` holds the children in which foreign code runs.
"""
