"""Is a gradient right? The binding is probed, compared with the truth, and given a verdict."""
