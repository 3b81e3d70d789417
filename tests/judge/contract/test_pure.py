import pytest

from gradcheck.judge.contract.side_effects import pure
from gradcheck.results.verdict import Verdict


@pytest.mark.parametrize(("name", "what"), [("scales-dy", "ct"), ("normalises-x", "x")])
def test_a_write_where_it_is_allowed_is_seen(subject, mutant, name, what):
    breach = pure(subject(mutant(name)))
    assert breach.seen == f"vjp writes into {what} where it may"
    assert breach.verdict is Verdict.ERROR


def test_vjp_into_is_watched_too(subject, right):
    def careless(outs, ct, x, w, *, eps=1e-5):
        outs["x"][...], dw = right.both(ct, x, w, eps)
        outs["w"] += dw
        w *= 1.5

    right.vjp_into = careless
    assert pure(subject(right)).seen == "vjp_into writes into w where it may"


def test_bits_count_and_not_values(subject, silu):
    def zeroes(ct, x):
        gradient = vjp(ct, x)
        if x.flags.writeable:
            ct[ct == ct.max()] = -ct.max()
        return gradient

    vjp, silu.vjp = silu.vjp, zeroes
    assert pure(subject(silu, "silu/default/typical")).seen == "vjp writes into ct where it may"


def test_right_ones_write_nowhere(subject, right, silu):
    assert pure(subject(right)) is None
    assert pure(subject(silu, "silu/default/typical")) is None
