"""Whole models: one module each, a program of the suite's operators."""
