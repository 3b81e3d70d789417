"""Whole models: one module each, a program of the suite's operators."""

from __future__ import annotations

from gradcheck_cases.models import gemma, gpt2, llama

MODELS = (gemma.GEMMA, llama.LLAMA, gpt2.GPT2)
"""In the order in which reports show them."""
