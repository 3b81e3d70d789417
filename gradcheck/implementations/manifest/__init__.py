"""What a C library offers, as its author wrote it down: prototypes, and what each argument is."""
