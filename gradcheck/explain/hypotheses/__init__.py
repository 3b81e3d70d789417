"""Hypotheses: known mistakes of backward passes, a module per kind of mistake.

| module | the mistake |
|---|---|
| `cotangent`, `attribute`, `operand` | another cotangent, attribute or argument is used |
| `factor` (with `quantities`) | one factor over the whole gradient |
| `slope` (with `elementwise`), `terms` | another derivative; one term of the formula is changed |
| `contribution`, `sparsity` | contributions are lost, overwritten, or reach other elements |
| `order` (with `permutations`), `place`, `size` | another order; some places; some sizes |
| `precision`, `narrow`, `nonfinite` | rounding, underflow, narrow types; NaN and infinities |
| `special_points` | kinks, ties, repeated indices, masks |
| `residual`, `state`, `shape`, `known` | rows; memory of calls; wrong shape; another operator |

`registry` lists their rules in the order in which the engine tries them.
"""
