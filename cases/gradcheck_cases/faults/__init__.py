"""Wrong backward passes of the models: what their judgement must reject, blame and name."""

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
