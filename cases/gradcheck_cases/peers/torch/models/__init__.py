"""The models as PyTorch modules, whose gradients are autograd's.

A module is built with the model's dimensions as keywords; called with its inputs, it returns the
loss. `names` maps the suite's parameters to the module's where their names differ.
"""

from __future__ import annotations

from torch import nn

from gradcheck_cases.peers.torch.models import baby_llama, basic, gemma, gpt2, llama, mnist

MODULES: dict[str, type[nn.Module]] = {
    "quadratic": basic.Quadratic,
    "test_opt": basic.TestOpt,
    "linear_regression": basic.LinearRegression,
    "svm": basic.Svm,
    "gemma": gemma.Gemma,
    "llama": llama.Llama,
    "gpt2": gpt2.Gpt2,
    "baby_llama": baby_llama.BabyLlama,
    "baby_llama_lora": baby_llama.BabyLlama,
    "mnist_fc": mnist.MnistFc,
    "mnist_cnn": mnist.MnistCnn,
}
