"""The commands: each module has one, its flags in `add(parser)`; nothing heavy at import."""
