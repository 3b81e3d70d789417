"""The command line: one module per command, its flags in `add(parser)`; nothing heavy at import.

In: arguments. Out: files, text and an exit code.
"""
