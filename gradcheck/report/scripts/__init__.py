"""One case alone: found by its name, or written as a script that stands without us."""
