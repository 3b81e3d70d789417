"""The models as PyTorch modules, whose gradients are autograd's.

A module is built with the model's dimensions as keywords; called with its inputs, it returns the
loss. `names` maps parameters of ours to the module's own, where they are called otherwise.
"""

from __future__ import annotations

from torch import nn

from gradcheck_cases.peers.torch.models import gemma, gpt2, llama

MODULES: dict[str, type[nn.Module]] = {
    "gemma": gemma.Gemma,
    "llama": llama.Llama,
    "gpt2": gpt2.Gpt2,
}
