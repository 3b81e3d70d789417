"""Explanations: why is a gradient wrong? The nearest cause, with the evidence for it.

In: a finding that failed, and a way to ask the code again. Out: a `Diagnosis`. `hypotheses` holds
one module per kind of mistake, `trace` reads the text of specs.
"""
