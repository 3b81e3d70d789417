"""What the tests of every model need: its gradients, by our fold and by PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F64


@pytest.fixture
def case(suite):
    """`case("gpt2", "tiny")`: the model's case of that size, in its first dialect."""
    return lambda model, size: suite.model_cases([model], sizes=[size])[0]


@pytest.fixture
def fold():
    """`fold(case, **options of backward)`: every value's cotangent, in float64."""

    def run(case, **options):
        values = case.program.forward(F64, case.given)
        return case.program.backward(F64, values, np.array(1.0), **options)

    return run


@pytest.fixture
def by_torch():
    """`by_torch(case)`: the loss and every parameter's gradient by PyTorch's autograd."""
    torch = pytest.importorskip("torch")
    from gradcheck_cases.peers.torch.models import MODULES

    def run(case):
        module = MODULES[case.spec.name](**case.attrs).to(torch.float64)
        names = getattr(module, "names", {})
        own = dict(module.named_parameters())
        tensors = {name: [own.pop(n) for n in names.get(name, (name,))] for name in case.params}
        assert not own, "the module has parameters that the model has not"
        with torch.no_grad():
            for name, copies in tensors.items():
                for copy in copies:
                    copy.copy_(torch.tensor(case.params[name]))
        loss = module(**{name: torch.tensor(value) for name, value in case.inputs.items()})
        loss.backward()
        grads = {name: sum(copy.grad.numpy() for copy in t) for name, t in tensors.items()}
        return loss.item(), grads

    return run
