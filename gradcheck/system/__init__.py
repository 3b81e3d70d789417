"""Files, descriptors, signals and the import path of this process. Nothing here knows gradients."""
