"""`gradcheck probe`: checks of a program that speaks GRADCHECK/1."""
