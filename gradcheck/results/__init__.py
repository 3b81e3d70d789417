"""Verdicts, findings and results: what a judgement is, on file and against a baseline.

In: what the judges found. Out: frozen data that reports print. `stored` writes and reads files,
`baseline` holds known failures, `diff` compares two runs, `words` are the phrases shared by all.
"""
