import pytest

from gradcheck.judge.contract.asking import Unasked, Vacuous
from gradcheck.judge.contract.buffers import aliases


@pytest.mark.parametrize(("name", "wrong"), [("two-steps", "dx["), ("weights-last", "dw[")])
def test_an_argument_that_is_read_after_it_was_written_is_seen(subject, mutant, name, wrong):
    assert aliases(subject(mutant(name))).seen.startswith(f"with dx in the memory of ct, {wrong}")


def test_a_primal_may_be_shared_too(subject, mutant):
    late = mutant("weights-last")
    late.aliases = (("x", "x"),)
    assert aliases(subject(late)).seen.startswith("with dx in the memory of x, dw[")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_may_share(subject, right, dtype):
    right.aliases = (("x", "ct"), ("x", "x"), ("w", "w"))
    right.accumulates = ()
    into = right.vjp_into

    def assigns(outs, ct, x, w, *, eps=1e-5):
        outs["x"][...], outs["w"][...] = right.both(ct, x, w, eps)

    right.vjp_into = assigns
    assert aliases(subject(right, dtype=dtype)) is None
    right.vjp_into = into


def test_nothing_is_owed_where_nothing_is_declared(subject, mutant, silu):
    late = mutant("weights-last")
    late.aliases = ()
    with pytest.raises(Vacuous):
        aliases(subject(late))
    with pytest.raises(Unasked):
        aliases(subject(silu, "silu/default/typical"))
