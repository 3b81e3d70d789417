"""Scenes for tests of rules: an operator of the suite with a wrong VJP, asked at its samples."""

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.explain.engine import RULES, diagnose
from gradcheck.explain.hypothesis import Observations
from gradcheck.explain.operator_probes import ProbeCollector
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import as_tuple
from gradcheck.power.attack import Wrong


def right(op, ct, *primals, **attrs):
    """The right gradients in the cotangent's dtype; of a low one, by way of float64."""
    vjp = gradcheck_cases.SUITE.operators[op].vjp
    dtype = (ct[0] if isinstance(ct, tuple) else ct).dtype
    if dtype.name in FLOATS:
        return as_tuple(vjp(FLOATS[dtype.name], ct, *primals, **attrs))
    parts = tuple(part.astype(np.float64) for part in as_tuple(ct))
    wide = [p.astype(np.float64) if p.dtype == dtype else p for p in primals]
    found = vjp(FLOATS["float64"], parts if isinstance(ct, tuple) else parts[0], *wide, **attrs)
    return tuple(g if g is None else g.astype(dtype) for g in as_tuple(found))


def changed(op, **by_name):
    """A VJP whose gradients of some primals are changed: `name=function(gradient)`."""
    spec = gradcheck_cases.SUITE.operators[op]

    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        for name, change in by_name.items():
            at = spec.primals.index(name)
            found[at] = np.asarray(change(found[at])).astype(found[at].dtype)
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


def spoiled(op, output, change):
    """A VJP of which one gradient is `change(gradient, ct, primals by name, attributes)`."""
    spec = gradcheck_cases.SUITE.operators[op]
    at = spec.primals.index(output)

    def vjp(ct, *primals, **attrs):
        found = list(right(op, ct, *primals, **attrs))
        named = dict(zip(spec.primals, primals, strict=False))
        with np.errstate(all="ignore"):
            wrong = np.asarray(change(found[at], ct, named, attrs))
        found[at] = wrong.astype(found[at].dtype)
        return found[0] if len(found) == 1 else tuple(found)

    return vjp


def reading_cotangent(op, edit):
    """The right VJP of another cotangent: `edit(ct, primals)`."""

    def vjp(ct, *primals, **attrs):
        found = right(op, edit(ct, *primals), *primals, **attrs)
        return found[0] if len(found) == 1 else found

    return vjp


def probes(op, vjp, *, dialect="", sample="", dtype="float64"):
    """What `vjp(ct, *primals, **attrs)` returns wherever the operator's diagnosis asks it."""
    spec = gradcheck_cases.SUITE.operators[op]
    case = gradcheck_cases.SUITE.cases(
        [op], [dialect or spec.dialects[0].name], [sample or spec.samples[0].name]
    )[0]
    return ProbeCollector(Wrong(vjp), dtype).probes(case)


def scene(op, vjp, output, **where):
    """The scene that rules look at."""
    found = probes(op, vjp, **where)
    failing = [probe for probe in found if probe.fails(output)]
    assert failing, "the VJP is right: there is nothing to diagnose"
    return Observations(output, failing, [probe for probe in found if not probe.fails(output)])


def named(op, vjp, output, rules=RULES, **where):
    """The diagnosis of a wrong gradient by all rules, or by some."""
    found = diagnose(output, probes(op, vjp, **where), rules)
    assert found is not None, "the VJP is right: there is nothing to diagnose"
    return found


def only(*names):
    """The rules of the table called `names`."""
    found = tuple(rule for rule in RULES if rule.name in names)
    assert len(found) == len(names)
    return found


def table(rows, keep=None):
    """A test of rows (rule, op, output, vjp, label, says[, where]): the rule names the defect.

    `says` is a part of its sentence, `where["evidence"]` of its evidence. An empty label: the rule
    leaves the defect to others.
    """

    @pytest.mark.parametrize("row", rows, ids=lambda row: f"{row[0]}-{row[1]}-{row[5] or row[2]}")
    def test(row):
        rules, op, output, vjp, label, says, *where = row
        where = dict(*where)
        evidence = where.pop("evidence", "")
        rules = only(*([rules] if isinstance(rules, str) else rules))
        found = named(op, vjp, output, rules, **where)
        assert evidence in " ".join(found.evidence)
        assert found.label == label, found
        assert says in found.says
        assert not label or found.rule in {rule.name for rule in rules}

    return pytest.mark.slow(keep=keep)(test) if keep else test


def reading(op, at, read):
    """The right VJP of other primals: number `at` is `read(primals)`."""

    def vjp(ct, *primals, **attrs):
        primals = list(primals)
        primals[at] = np.asarray(read(*primals)).astype(primals[at].dtype)
        found = right(op, ct, *primals, **attrs)
        return found[0] if len(found) == 1 else found

    return vjp
