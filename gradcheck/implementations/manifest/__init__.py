"""Manifests: the prototypes of a C library, and the meaning of each argument."""
