"""A C program that shows one wrong gradient of a library, and needs that library alone."""
def program(*a): raise NotImplementedError
