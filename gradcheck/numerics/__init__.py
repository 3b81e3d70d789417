"""Numerics: what is the true derivative? Differences with error bars, and a 50-digit oracle.

In: a function and a point. Out: slopes with error bars. `arithmetic` evaluates one text in several
number types, `highprecision` a forward that no spec describes. Shapes are written with the letters
q (cotangents), n (elements of a primal), m (outputs), k (steps or copies), b (blocks of elements).
"""
