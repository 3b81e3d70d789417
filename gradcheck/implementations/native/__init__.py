"""C functions as VJPs: calls from a manifest and a case, gradients from what they leave."""
