"""One case alone: found by its name, shown in full, or written as a script that needs no gradcheck."""
