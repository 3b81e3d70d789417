"""The operating system: files, descriptors, signals, the import path and entry points."""
