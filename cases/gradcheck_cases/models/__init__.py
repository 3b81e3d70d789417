"""Whole models: one module each, a program of the suite's operators."""

from __future__ import annotations

from gradcheck_cases.models import (
    baby_llama,
    gemma,
    gpt2,
    linear_regression,
    llama,
    mnist,
    quadratic,
    svm,
)

MODELS = (
    quadratic.QUADRATIC,
    quadratic.TEST_OPT,
    linear_regression.LINEAR_REGRESSION,
    svm.SVM,
    gemma.GEMMA,
    llama.LLAMA,
    gpt2.GPT2,
    baby_llama.BABY_LLAMA,
    baby_llama.BABY_LLAMA_LORA,
    mnist.MNIST_FC,
    mnist.MNIST_CNN,
)
"""In the order in which reports show them."""
