"""GRADCHECK/1: how a program in any language is asked for gradients."""
