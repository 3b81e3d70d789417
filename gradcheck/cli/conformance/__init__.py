"""`gradcheck probe`: does a program keep GRADCHECK/1? Questions, and what its answers break."""
