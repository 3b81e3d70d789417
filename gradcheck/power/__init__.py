"""Power: wrong backward passes, which the judgement must reject.

In: mutants and faults of a suite. Out: a report on which were rejected, and named rightly.
`run_mutants` has the plan, the report and the runner; `operators`, `model`, `rule`, `contract`,
`narrow` and `diagnosis` are its kinds. `attack` judges one wrong answer in one case, and suites
make mutants with `mutate`.
"""
