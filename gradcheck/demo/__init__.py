"""What `gradcheck demo` judges: kernels to look at, to copy, and to play with."""
