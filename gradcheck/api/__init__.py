"""Functions for a user's own code: `check`, `assert_vjp`, `check_model`, without a spec.

In: any function, its VJP and arrays. Out: a `Result` with one finding per gradient, which prints
itself.
"""
