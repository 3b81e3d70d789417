"""Hypotheses: known mistakes of backward passes, a module per kind of mistake.

| module | the mistake |
|---|---|
| `cotangent_or_attribute`, `wrong_argument` | another cotangent, attribute or argument is used |
| `factor` (with `factor_names`) | one factor over the whole gradient |
| `other_function`, `terms` | another derivative; one term of the formula is changed |
| `lost_contribution`, `sparsity` | contributions are lost, overwritten, or reach other elements |
| `order`, `wrong_region`, `size` | another order; wrong in some places alone; at some sizes |
| `precision`, `narrow` | rounding, cancellation, underflow; operands or sums in narrow types |
| `special_points` | kinks, ties, repeated indices, masks; NaN and infinities |
| `shape_or_state` | a gradient missing or of another shape; memory of earlier calls |

`elementwise` tests whether forward, or code, acts element by element. `gradcheck.explain.engine`
lists the rules in the order in which it tries them.
"""
