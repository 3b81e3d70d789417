"""Wrong backward passes of the models, which must be rejected and blamed on their stages."""

from __future__ import annotations

from gradcheck.spec.fault import Fault
from gradcheck_cases.faults import baby_llama, basic, gemma, gpt2, llama, mnist

FAULTS: tuple[Fault, ...] = (
    *basic.FAULTS,
    *gemma.FAULTS,
    *llama.FAULTS,
    *llama.TRAINER,
    *gpt2.FAULTS,
    *baby_llama.FAULTS,
    *mnist.FAULTS,
)
