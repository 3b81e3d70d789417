"""What the tests of every model need: its gradients, by our fold and by PyTorch."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.numerics.arithmetic import F64


@pytest.fixture
def case(suite):
    """`case("gpt2", "tiny")`: the model's case of that size, in its first dialect."""
    return lambda model, size: suite.model_cases([model], sizes=[size])[0]


@pytest.fixture
def count():
    """`count(spec, **dimensions)`: how many parameters a model has where none is drawn."""
    shapes = SimpleNamespace(
        normal=lambda *shape, scale: math.prod(shape),
        uniform=lambda low, high, *shape: math.prod(shape),
    )
    return lambda spec, **dims: sum(p(shapes) for p in spec.build(**dims).params.values())


@pytest.fixture
def fold():
    """`fold(case, **options of backward)`: every value's cotangent, in float64."""

    def run(case, **options):
        values = case.program.forward(F64, case.given)
        return case.program.backward(F64, values, np.array(1.0), **options)

    return run


@pytest.fixture
def share(fold):
    """`share(case, stage, value)`: the gradient of a value that one of its readers contributes."""

    def run(case, name, value):
        kept = {}

        def vjp(stage, cts, values):
            found = stage.vjp(F64, cts, values)
            if stage.name == name:
                kept.update(zip(stage.reads, found, strict=True))
            return found

        fold(case, vjp=vjp)
        return kept[value]

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
