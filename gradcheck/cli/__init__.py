"""The command line: one module per command, with its flags in `add(parser)`.

In: arguments. Out: files, text and an exit code. `options` makes shared flags from the table of
options; `reports` and `gate` end a command. Nothing here imports NumPy at the top.
"""
