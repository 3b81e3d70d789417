"""Power: wrong backward passes, which the judgement must reject.

In: mutants and faults of a suite. Out: a report on which were rejected, and named rightly.
`mutation` is the runner; `operators`, `model`, `rule`, `contract` and `narrow_model` are its kinds.
"""
