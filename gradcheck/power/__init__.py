"""Power: can the checks fail? Wrong backward passes, put through the same judgement.

In: mutants and faults of a suite. Out: a report of which were rejected, and named rightly.
"""

__path__.append(f"{__path__[0]}/_moved")  # former names of modules, for suites on file
