"""Numerics: the true derivative, from differences with error bars or in 50 digits.

In: a function and a point. Out: slopes with error bars.

- `estimator` holds the estimate of every element of a primal; `richardson` chooses the steps,
  `coarse_pass` settles what one pair of steps can, `noise` measures forward's own.
- `directional_slope` is the slope along one direction, `kinks_and_slopes` what forward's values at
  every scale show.
- `operator_oracle` differentiates an operator of a suite in 50 digits, `highprecision` a user's
  own function; `arithmetic` and `fifty_digit_arithmetic` are their number types.

Shapes are written with the letters q (cotangents), n (elements of a primal), m (outputs), k (steps
or copies), b (blocks of elements).
"""
