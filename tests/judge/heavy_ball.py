"""A rule with state, small enough to be followed by hand, and its truth."""

from gradcheck.judge.rule_truth import RuleTruth
from gradcheck.spec.rule import RuleCase, RuleSpec, Steps

LR = 0.0625


def init(xp, params):
    return {"buf": {name: xp.zeros_like(p) for name, p in params.items()}}


def heavy(xp, params, grads, state, t, *, momentum=0.5):
    buf = {name: momentum * state["buf"][name] + g for name, g in grads.items()}
    return {name: p - LR * buf[name] for name, p in params.items()}, {"buf": buf}


def drawn(draw, *_):
    return {"w": draw.signed(2, 3), "s": draw.signed()}


def truth_of(**parts):
    sample = Steps(name="typical", hunts="a sign", params=drawn, gradients=drawn, **parts)
    spec = RuleSpec("heavy", init, heavy, (sample,), "p", "s")
    return RuleTruth(RuleCase(spec, spec.dialects[0], sample, 0, "test"))
