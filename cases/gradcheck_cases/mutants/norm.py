"""Mutants of the operators in `gradcheck_cases.norm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.spec.mutant import Mutant, mutant_table
from gradcheck_cases.norm import (
    batch_norm_vjp,
    group_norm_vjp,
    l2_normalize_vjp,
    layer_norm_vjp,
    norm_vjp,
    qk_norm_vjp,
    rms_norm_back_vjp,
    rms_norm_forward,
    rms_norm_vjp,
)

MUTANTS: tuple[Mutant, ...] = ()


# ── What several of them share ───────────────────────────────────────────────────────────────


def _mean(xp: Any, x: Any) -> Any:
    return xp.mean(x, axis=-1, keepdims=True)


def _rms(xp: Any, x: Any, eps: float) -> Any:
    return 1 / xp.sqrt(_mean(xp, x * x) + eps)


_first_row = mutate.first_for_all(-2)


# ── rms_norm ─────────────────────────────────────────────────────────────────────────────────


def _rms_variant(*, dx: Callable[..., Any] | None = None, dw: Callable[..., Any] | None = None):
    """The VJP with another `dx(xp, g, x, n, r)`, or another `dw(xp, ct, x, n, w, dx)`."""

    def vjp(xp, ct, x, w=None, *, eps=1e-5, unit_offset=False):
        r = _rms(xp, x, eps)
        n = x * r
        gain = 1 if w is None else 1 + w if unit_offset else w
        g = ct * gain
        right = r * (g - n * _mean(xp, g * n))
        given = right if dx is None else dx(xp, g, x, n, r)
        if w is None:
            return given
        return given, xp.reduce_to(ct * n, w) if dw is None else dw(xp, ct, x, n, w, given)

    return vjp


def rms_norm_eps_outside_vjp(xp, ct, x, w=None, *, eps=1e-5, unit_offset=False):
    r = 1 / (xp.sqrt(_mean(xp, x * x)) + eps)
    n = x * r
    g = ct if w is None else ct * (1 + w if unit_offset else w)
    dx = r * (g - n * _mean(xp, g * n))
    return dx if w is None else (dx, xp.reduce_to(ct * n, w))


def rms_norm_no_gain_vjp(xp, ct, x, w=None, *, eps=1e-5, unit_offset=False):
    dx = rms_norm_vjp(xp, ct, x, eps=eps)
    return dx if w is None else (dx, rms_norm_vjp(xp, ct, x, w, eps=eps)[1])


def rms_norm_from_output_vjp(xp, ct, x, w=None, *, eps=1e-5, unit_offset=False):
    y = rms_norm_forward(xp, x, w, eps=eps, unit_offset=unit_offset)
    gain = 1 + w if unit_offset else w
    return _rms_variant(dw=lambda xp, ct, x, n, w, dx: xp.reduce_to(ct * (y / gain), w))(
        xp, ct, x, w, eps=eps, unit_offset=unit_offset
    )


def rms_norm_exchanged_vjp(xp, ct, x, w=None, *, eps=1e-5, unit_offset=False):
    right = rms_norm_vjp(xp, ct, x, w, eps=eps, unit_offset=unit_offset)
    dx = rms_norm_vjp(xp, x, ct, eps=eps)
    return dx if w is None else (dx, right[1])


def rms_norm_centred_vjp(xp, ct, x, w=None, *, eps=1e-5, unit_offset=False):
    return rms_norm_vjp(xp, ct, x - _mean(xp, x), w, eps=eps, unit_offset=unit_offset)


def _last_row(xp: Any, x: Any, w: Any) -> Any:
    rows = xp.reshape(x, (-1, x.shape[-1]))
    return xp.sum(rows[-1:], axis=0)


WEIGHTED = ("weight", "unit-offset")


MUTANTS += mutant_table(
    "rms_norm",
    {
        ("second-term-short", "term scale saved-value", "typical"): (
            "The second term of dx lacks one factor 1/rms.",
            _rms_variant(dx=lambda xp, g, x, n, r: r * g - n * r * _mean(xp, g * x)),
            {"modelled_on": "a Llama trainer's cpu_rmsnorm_backward"},
        ),
        ("no-projection", "term", "typical"): (
            "The second term of dx is missing: rms is taken for a constant.",
            _rms_variant(dx=lambda xp, g, x, n, r: r * g),
        ),
        ("projection-sum", "reduction term", "typical"): (
            "The projection is a sum over the row where it should be a mean.",
            _rms_variant(
                dx=lambda xp, g, x, n, r: r * (g - n * xp.sum(g * n, axis=-1, keepdims=True))
            ),
        ),
        ("root-of-width", "scale term", "width-64"): (
            "The projection is divided by the root of d.",
            _rms_variant(
                dx=lambda xp, g, x, n, r: (
                    r * (g - n * xp.sum(g * n, axis=-1, keepdims=True) / xp.sqrt_of(x.shape[-1]))
                )
            ),
        ),
        ("eps-omitted", "eps non-finite", "tiny"): (
            "The backward recomputes rms without eps.",
            mutate.attribute(rms_norm_vjp, eps=0.0),
        ),
        ("eps-outside", "eps", "tiny"): (
            "eps is added to the root, not under it.",
            rms_norm_eps_outside_vjp,
        ),
        ("eps-default", "attribute eps", "eps-0.1"): (
            "eps is 1e-5, whatever forward was given.",
            mutate.attribute(rms_norm_vjp, eps=1e-5),
        ),
        ("no-gain", "scale derivative", "typical"): (
            "The weight is left out of dx.",
            rms_norm_no_gain_vjp,
            {"dialects": WEIGHTED},
        ),
        ("offset-ignored", "attribute", "typical"): (
            "dx is multiplied by w where forward multiplied by 1 + w.",
            mutate.attribute(rms_norm_vjp, unit_offset=False),
            {"dialects": ("unit-offset",)},
        ),
        ("dw-mean", "reduction", "typical"): (
            "dw is the mean over rows.",
            _rms_variant(dw=lambda xp, ct, x, n, w, dx: xp.mean(ct * n, tuple(range(x.ndim - 1)))),
            {"dialects": WEIGHTED},
        ),
        ("dw-last-row", "accumulation broadcast", "typical"): (
            "Each row overwrites dw.",
            _rms_variant(dw=lambda xp, ct, x, n, w, dx: _last_row(xp, ct * n, w)),
            {"dialects": WEIGHTED},
        ),
        ("dw-first-item", "broadcast accumulation index", "batched"): (
            "dw is summed over the rows of the first item only.",
            _rms_variant(
                dw=lambda xp, ct, x, n, w, dx: xp.reduce_to(
                    (ct * n)[0] if x.ndim > 2 else ct * n, w
                )
            ),
            {"dialects": WEIGHTED},
        ),
        ("dw-reads-x", "saved-value scale derivative", "row-scales"): (
            "dw is formed with x, not with the normalised row.",
            _rms_variant(dw=lambda xp, ct, x, n, w, dx: xp.reduce_to(ct * x, w)),
            {"dialects": WEIGHTED},
        ),
        ("dw-reads-dx", "aliasing saved-value", "typical"): (
            "dx is written over the cotangent before dw reads it.",
            _rms_variant(dw=lambda xp, ct, x, n, w, dx: xp.reduce_to(dx * n, w)),
            {"dialects": WEIGHTED},
        ),
        ("from-output", "non-finite", "zero-gain"): (
            "The normalised row is recovered as y divided by the gain: 0/0.",
            rms_norm_from_output_vjp,
            {"dialects": WEIGHTED},
        ),
        ("exchanged", "slot", "typical"): (
            "x and the cotangent are passed in each other's place.",
            rms_norm_exchanged_vjp,
        ),
        ("centred", "derivative saved-value", "offset"): (
            "x is centred first, as in layer_norm.",
            rms_norm_centred_vjp,
        ),
        ("first-rows-rms", "index saved-value", "row-scales"): (
            "All rows are divided by the first row's rms.",
            _rms_variant(
                dx=lambda xp, g, x, n, r: (
                    _first_row(xp, r)
                    * (g - x * _first_row(xp, r) * _mean(xp, g * x * _first_row(xp, r)))
                )
            ),
        ),
    },
)

# ── layer_norm ───────────────────────────────────────────────────────────────────────────────


def _layer_variant(
    *,
    dx: Callable[..., Any] | None = None,
    statistics: Callable[..., Any] | None = None,
    dw: Callable[..., Any] | None = None,
):
    """The VJP with another `dx(xp, g, n, r)`, other saved (n, r), or another `dw`."""

    def vjp(xp, ct, x, w=None, b=None, *, eps=1e-5):
        c = x - _mean(xp, x)
        r = 1 / xp.sqrt(_mean(xp, c * c) + eps)
        n = c * r
        if statistics is not None:
            n, r = statistics(xp, x, n, r, eps)
        g = ct if w is None else ct * w
        given = r * (g - _mean(xp, g) - n * _mean(xp, g * n)) if dx is None else dx(xp, g, n, r)
        if w is None:
            return given
        gain = xp.reduce_to(ct * n, w) if dw is None else dw(xp, ct, x, n, w)
        return given, gain, xp.reduce_to(ct, b)

    return vjp


def _one_pass(xp: Any, x: Any, n: Any, r: Any, eps: float) -> Any:
    mean = _mean(xp, x)
    r = 1 / xp.sqrt(_mean(xp, x * x) - mean * mean + eps)
    return (x - mean) * r, r


def _unbiased(xp: Any, x: Any, n: Any, r: Any, eps: float) -> Any:
    c = x - _mean(xp, x)
    d = x.shape[-1]
    r = 1 / xp.sqrt(xp.sum(c * c, axis=-1, keepdims=True) / max(d - 1, 1) + eps)
    return c * r, r


def _stale_scale(xp: Any, x: Any, n: Any, r: Any, eps: float) -> Any:
    r = _rows_before(xp, r)
    return (x - _mean(xp, x)) * r, r


def _stale_mean(xp: Any, x: Any, n: Any, r: Any, eps: float) -> Any:
    return (x - _rows_before(xp, _mean(xp, x))) * r, r


def layer_norm_no_gain_vjp(xp, ct, x, w=None, b=None, *, eps=1e-5):
    dx = layer_norm_vjp(xp, ct, x, eps=eps)
    return dx if w is None else (dx, *layer_norm_vjp(xp, ct, x, w, b, eps=eps)[1:])


def layer_norm_from_output_vjp(xp, ct, x, w=None, b=None, *, eps=1e-5):
    def from_output(xp, ct, x, n, w):
        return xp.reduce_to(ct * ((n * w + b - b) / w), w)

    return _layer_variant(dw=from_output)(xp, ct, x, w, b, eps=eps)


def _rows_before(xp: Any, r: Any) -> Any:
    """Each row's neighbour above; the first one's own."""
    return xp.concatenate([r[..., :1, :], r[..., :-1, :]], axis=-2)


MUTANTS += mutant_table(
    "layer_norm",
    {
        ("no-mean-term", "term", "typical"): (
            "The mean of the cotangent is not subtracted: mu is taken for a constant.",
            _layer_variant(dx=lambda xp, g, n, r: r * (g - n * _mean(xp, g * n))),
        ),
        ("no-projection", "term", "typical"): (
            "The projection on the row is missing: sigma is taken for a constant.",
            _layer_variant(dx=lambda xp, g, n, r: r * (g - _mean(xp, g))),
        ),
        ("scale-squared", "scale derivative", "typical"): (
            "dx is multiplied by the square of the saved 1/sigma.",
            _layer_variant(
                dx=lambda xp, g, n, r: r * r * (g - _mean(xp, g) - n * _mean(xp, g * n))
            ),
        ),
        ("scale-stale", "saved-value index", "typical"): (
            "The saved 1/sigma is that of the row before.",
            _layer_variant(statistics=_stale_scale),
        ),
        ("mean-stale", "saved-value index", "typical"): (
            "The saved mean is that of the row before.",
            _layer_variant(statistics=_stale_mean),
        ),
        ("uncentred", "saved-value", "offset-100"): (
            "The saved row is x over sigma: its mean was never subtracted.",
            _layer_variant(statistics=lambda xp, x, n, r, eps: (x * r, r)),
        ),
        ("one-pass", "precision", "offset-1000"): (
            "The variance is the mean of squares minus the square of the mean, which cancels.",
            _layer_variant(statistics=_one_pass),
            {"dtype": "float32"},
        ),
        ("unbiased", "scale reduction", "row-length-2"): (
            "The variance is divided by d - 1.",
            _layer_variant(statistics=_unbiased),
        ),
        ("eps-omitted", "eps non-finite", "near-constant"): (
            "The backward recomputes sigma without eps.",
            mutate.attribute(layer_norm_vjp, eps=0.0),
        ),
        ("eps-default", "attribute eps", "eps-0.1"): (
            "eps is 1e-5, whatever forward was given.",
            mutate.attribute(layer_norm_vjp, eps=1e-5),
        ),
        ("dw-db-exchanged", "slot", "typical"): (
            "dw and db stand in each other's place.",
            mutate.swapped(layer_norm_vjp, 1, 2),
            {"dialects": ("affine",)},
        ),
        ("db-mean", "reduction", "typical"): (
            "db is the mean over rows.",
            mutate.scaled(
                layer_norm_vjp,
                2,
                lambda xp, x, w, b, *, eps=1e-5: x.shape[-1] / max(x.size, 1),
            ),
            {"dialects": ("affine",)},
        ),
        ("dw-last-row", "accumulation broadcast", "typical"): (
            "Each row overwrites dw.",
            _layer_variant(dw=lambda xp, ct, x, n, w: _last_row(xp, ct * n, w)),
            {"dialects": ("affine",)},
        ),
        ("dw-first-item", "broadcast accumulation index", "batched"): (
            "dw is summed over the rows of the first item only.",
            _layer_variant(
                dw=lambda xp, ct, x, n, w: xp.reduce_to((ct * n)[0] if x.ndim > 2 else ct * n, w)
            ),
            {"dialects": ("affine",)},
        ),
        ("no-gain", "scale derivative", "typical"): (
            "The weight is left out of dx.",
            layer_norm_no_gain_vjp,
            {"dialects": ("affine",)},
        ),
        ("from-output", "non-finite", "zero-weight"): (
            "The normalised row is recovered as (y - b)/w: 0/0.",
            layer_norm_from_output_vjp,
            {"dialects": ("affine",)},
        ),
    },
)

# ── norm ─────────────────────────────────────────────────────────────────────────────────────


def _norm_variant(**parts: Any):
    inner = _layer_variant(**parts)

    def vjp(xp, ct, x, *, eps=1e-5):
        return inner(xp, ct, x, eps=eps)

    return vjp


def norm_rms_vjp(xp, ct, x, *, eps=1e-5):
    return rms_norm_vjp(xp, ct, x, eps=eps)


def norm_eps_outside_vjp(xp, ct, x, *, eps=1e-5):
    c = x - _mean(xp, x)
    r = 1 / (xp.sqrt(_mean(xp, c * c)) + eps)
    n = c * r
    return r * (ct - _mean(xp, ct) - n * _mean(xp, ct * n))


def _global(xp: Any, x: Any, n: Any, r: Any, eps: float) -> Any:
    r = _first_row(xp, r)
    return (x - _mean(xp, x)) * r, r


def _first_64(xp: Any, x: Any, n: Any, r: Any, eps: float) -> Any:
    c = x - _mean(xp, x[..., :64])
    r = 1 / xp.sqrt(_mean(xp, (c * c)[..., :64]) + eps)
    return c * r, r


MUTANTS += mutant_table(
    "norm",
    {
        ("no-mean-term", "term", "typical"): (
            "The mean of the cotangent is not subtracted: mu is taken for a constant.",
            _norm_variant(dx=lambda xp, g, n, r: r * (g - n * _mean(xp, g * n))),
        ),
        ("no-projection", "term", "typical"): (
            "The projection on the row is missing: sigma is taken for a constant.",
            _norm_variant(dx=lambda xp, g, n, r: r * (g - _mean(xp, g))),
        ),
        ("of-rms-norm", "derivative", "typical"): (
            "The backward is that of rms_norm.",
            norm_rms_vjp,
        ),
        ("eps-outside", "eps", "near-constant"): (
            "eps is added to the root, not under it.",
            norm_eps_outside_vjp,
        ),
        ("eps-omitted", "eps non-finite", "near-constant"): (
            "The backward recomputes sigma without eps.",
            mutate.attribute(norm_vjp, eps=0.0),
        ),
        ("eps-default", "attribute eps", "eps-0.1"): (
            "eps is 1e-5, whatever forward was given.",
            mutate.attribute(norm_vjp, eps=1e-5),
        ),
        ("unbiased", "scale reduction", "typical"): (
            "The variance is divided by d - 1.",
            _norm_variant(statistics=_unbiased),
        ),
        ("projection-reads-x", "saved-value term", "scales"): (
            "The projection is formed with x, not with the normalised row.",
            _norm_variant(statistics=lambda xp, x, n, r, eps: (x, r)),
        ),
        ("first-rows-scale", "index saved-value", "scales"): (
            "All rows are divided by the first row's sigma.",
            _norm_variant(statistics=_global),
        ),
        ("block-of-64", "shape accumulation", "width-65"): (
            "The statistics leave out elements from 64 on.",
            _norm_variant(statistics=_first_64),
        ),
    },
)

# ── rms_norm_back ────────────────────────────────────────────────────────────────────────────


def _back_variant(dx: Callable[..., Any]):
    """The double backward with another `dx(xp, u, g, n, r)`."""

    def vjp(xp, ct, g, x, *, eps=1e-6):
        r = _rms(xp, x, eps)
        n = x * r
        return r * (ct - n * _mean(xp, ct * n)), dx(xp, ct, g, n, r)

    return vjp


def _back_terms(xp: Any, u: Any, g: Any, n: Any) -> tuple[Any, Any, Any]:
    return _mean(xp, u * g), _mean(xp, u * n), _mean(xp, g * n)


def _back_factor_two(xp: Any, u: Any, g: Any, n: Any, r: Any) -> Any:
    ug, un, gn = _back_terms(xp, u, g, n)
    return -r * r * (n * (ug - 2 * un * gn) + u * gn + g * un)


def _back_scale(xp: Any, u: Any, g: Any, n: Any, r: Any) -> Any:
    ug, un, gn = _back_terms(xp, u, g, n)
    return -r * (n * (ug - 3 * un * gn) + u * gn + g * un)


def _back_without_g(xp: Any, u: Any, g: Any, n: Any, r: Any) -> Any:
    ug, un, gn = _back_terms(xp, u, g, n)
    return -r * r * (n * (ug - 3 * un * gn) + u * gn)


def _back_fixed_scale(xp: Any, u: Any, g: Any, n: Any, r: Any) -> Any:
    _, un, gn = _back_terms(xp, u, g, n)
    return -r * r * (u * gn + g * un)


def rms_norm_back_no_projection_vjp(xp, ct, g, x, *, eps=1e-6):
    return ct * _rms(xp, x, eps), rms_norm_back_vjp(xp, ct, g, x, eps=eps)[1]


def rms_norm_back_exchanged_vjp(xp, ct, g, x, *, eps=1e-6):
    return rms_norm_back_vjp(xp, g, ct, x, eps=eps)


def rms_norm_back_first_row_vjp(xp, ct, g, x, *, eps=1e-6):
    r = _first_row(xp, _rms(xp, x, eps))
    n = x * r
    ug, un, gn = _back_terms(xp, ct, g, n)
    return r * (ct - n * un), -r * r * (n * (ug - 3 * un * gn) + ct * gn + g * un)


MUTANTS += mutant_table(
    "rms_norm_back",
    {
        ("factor-two", "term scale double", "typical"): (
            "The term of r cubed is differentiated with a factor 2 in place of 3.",
            _back_variant(_back_factor_two),
        ),
        ("scale-once", "scale derivative double", "scales"): (
            "dx has one factor r where it needs two.",
            _back_variant(_back_scale),
        ),
        ("no-g-term", "term double", "typical"): (
            "The term of dx in the direction of g is missing.",
            _back_variant(_back_without_g),
        ),
        ("scale-constant", "term double", "typical"): (
            "r is taken for a saved constant in the second derivative.",
            _back_variant(_back_fixed_scale),
        ),
        ("sign", "sign double", "typical"): (
            "dx has the other sign.",
            mutate.negated(rms_norm_back_vjp, 1),
        ),
        ("no-gradient-of-x", "slot double", "typical"): (
            "Only the cotangent's gradient is returned; that of x is zeros.",
            mutate.output(rms_norm_back_vjp, 1, mutate.zeros),
        ),
        ("no-projection", "term double", "typical"): (
            "dg is ct r: its second term is missing.",
            rms_norm_back_no_projection_vjp,
        ),
        ("slots-exchanged", "slot double", "typical"): (
            "dx comes first, in the order of ggml's arguments.",
            mutate.swapped(rms_norm_back_vjp, 0, 1),
        ),
        ("cotangents-exchanged", "slot double", "typical"): (
            "g and the new cotangent are passed in each other's place (dx does not mind).",
            rms_norm_back_exchanged_vjp,
        ),
        ("first-rows-rms", "index saved-value double", "scales"): (
            "All rows are divided by the first row's rms.",
            rms_norm_back_first_row_vjp,
        ),
        ("eps-default", "attribute eps double", "eps-0.1"): (
            "eps is 1e-6, whatever forward was given.",
            mutate.attribute(rms_norm_back_vjp, eps=1e-6),
        ),
        ("eps-omitted", "eps non-finite double", "tiny"): (
            "rms is recomputed without eps.",
            mutate.attribute(rms_norm_back_vjp, eps=0.0),
        ),
    },
)

# ── group_norm ───────────────────────────────────────────────────────────────────────────────


def _grouped(xp: Any, x: Any, groups: int, eps: float) -> tuple[Any, Any, Any]:
    """Groups as rows [..., groups, elements], the same normalised, and their 1/sigma."""
    size = x.shape[-2] // groups * x.shape[-1]
    rows = xp.reshape(x, (*x.shape[:-2], groups, size))
    c = rows - _mean(xp, rows)
    r = 1 / xp.sqrt(_mean(xp, c * c) + eps)
    return rows, c * r, r


def _group_variant(dx: Callable[..., Any]):
    """The VJP with another `dx(xp, g, n, r)`, on groups as rows."""

    def vjp(xp, ct, x, w=None, b=None, *, groups=2, eps=1e-5):
        _, n, r = _grouped(xp, x, groups, eps)
        g = xp.reshape(ct if w is None else ct * w[..., None], n.shape)
        given = xp.reshape(dx(xp, g, n, r), x.shape)
        if w is None:
            return given
        return (given, *group_norm_vjp(xp, ct, x, w, b, groups=groups, eps=eps)[1:])

    return vjp


def group_norm_gain_late_vjp(xp, ct, x, w=None, b=None, *, groups=2, eps=1e-5):
    dx = group_norm_vjp(xp, ct, x, groups=groups, eps=eps)
    if w is None:
        return dx
    rest = group_norm_vjp(xp, ct, x, w, b, groups=groups, eps=eps)[1:]
    return (dx * w[..., None], *rest)


def group_norm_dealt_out_vjp(xp, ct, x, w=None, b=None, *, groups=2, eps=1e-5):
    c = x.shape[-2]
    deal = np.arange(c).reshape(-1, groups).T.reshape(-1)  # c mod G first
    back = np.argsort(deal)
    dealt = group_norm_vjp(
        xp,
        (ct if w is None else ct * w[..., None])[..., deal, :],
        x[..., deal, :],
        groups=groups,
        eps=eps,
    )[..., back, :]
    if w is None:
        return dealt
    return (dealt, *group_norm_vjp(xp, ct, x, w, b, groups=groups, eps=eps)[1:])


def group_norm_dw_first_item_vjp(xp, ct, x, w=None, b=None, *, groups=2, eps=1e-5):
    dx, _, db = group_norm_vjp(xp, ct, x, w, b, groups=groups, eps=eps)
    n = xp.reshape(_grouped(xp, x, groups, eps)[1], x.shape)
    return dx, xp.sum((ct * n)[:1], axis=(0, -1)), db


MUTANTS += mutant_table(
    "group_norm",
    {
        ("groups-ignored", "attribute", "typical"): (
            "All channels form one group.",
            mutate.attribute(group_norm_vjp, groups=1),
        ),
        ("dealt-out", "index layout", "three-groups"): (
            "Channels are dealt out to the groups one by one (c mod G).",
            group_norm_dealt_out_vjp,
        ),
        ("no-mean-term", "term", "typical"): (
            "The mean of the cotangent is not subtracted: mu is taken for a constant.",
            _group_variant(lambda xp, g, n, r: r * (g - n * _mean(xp, g * n))),
        ),
        ("no-projection", "term", "typical"): (
            "The projection on the group is missing: sigma is taken for a constant.",
            _group_variant(lambda xp, g, n, r: r * (g - _mean(xp, g))),
        ),
        ("all-elements-divided-by", "reduction term", "typical"): (
            "The sums of a group are divided by the number of elements of all groups.",
            _group_variant(
                lambda xp, g, n, r: r * (g - (_mean(xp, g) + n * _mean(xp, g * n)) / g.shape[-2])
            ),
        ),
        ("gain-late", "derivative", "typical"): (
            "The weight is applied after the means were taken, where it differs by channel.",
            group_norm_gain_late_vjp,
            {"dialects": ("affine",)},
        ),
        ("dw-first-item", "broadcast accumulation index", "typical"): (
            "dw is that of the first item only.",
            group_norm_dw_first_item_vjp,
            {"dialects": ("affine",)},
        ),
        ("db-mean", "reduction", "typical"): (
            "db is the mean over pixels.",
            mutate.scaled(group_norm_vjp, 2, lambda xp, x, w, b, **attrs: 1 / x.shape[-1]),
            {"dialects": ("affine",)},
        ),
        ("dw-db-exchanged", "slot", "typical"): (
            "dw and db stand in each other's place.",
            mutate.swapped(group_norm_vjp, 1, 2),
            {"dialects": ("affine",)},
        ),
        ("eps-default", "attribute eps", "eps-0.1"): (
            "eps is 1e-5, whatever forward was given.",
            mutate.attribute(group_norm_vjp, eps=1e-5),
        ),
        ("eps-omitted", "non-finite eps", "constant-group"): (
            "sigma is recomputed without eps: 0/0 for a constant group.",
            mutate.attribute(group_norm_vjp, eps=0.0),
        ),
        ("first-groups-scale", "index saved-value", "typical"): (
            "All groups are multiplied by the first group's 1/sigma.",
            _group_variant(
                lambda xp, g, n, r: _first_row(xp, r) * (g - _mean(xp, g) - n * _mean(xp, g * n))
            ),
        ),
    },
)

# ── batch_norm ───────────────────────────────────────────────────────────────────────────────


def _batch_variant(
    dx: Callable[..., Any] | None = None, axes: tuple[int, ...] = (-3, -1), ddof: int = 0
):
    """The VJP with another `dx(xp, g, n, r, mean)`, other axes of the statistics, or n - 1."""

    def vjp(xp, ct, x, w=None, b=None, *, eps=1e-5):
        def mean(values):
            return xp.mean(values, axis=axes, keepdims=True)

        c = x - mean(x)
        count = int(np.prod([x.shape[a] for a in axes]))
        r = 1 / xp.sqrt(mean(c * c) * (count / max(count - ddof, 1)) + eps)
        n = c * r
        g = ct if w is None else ct * w[..., None, :, None]
        given = r * (g - mean(g) - n * mean(g * n)) if dx is None else dx(xp, g, n, r, mean)
        if w is None:
            return given
        return given, xp.sum(ct * n, axis=(-3, -1)), xp.sum(ct, axis=(-3, -1))

    return vjp


def batch_norm_running_vjp(xp, ct, x, w=None, b=None, *, eps=1e-5):
    g = ct if w is None else ct * w[..., None, :, None]
    dx = g / xp.sqrt(xp.full(x.shape, "1") + eps)
    return dx if w is None else (dx, *batch_norm_vjp(xp, ct, x, w, b, eps=eps)[1:])


MUTANTS += mutant_table(
    "batch_norm",
    {
        ("evaluation-mode", "term", "typical"): (
            "The statistics are taken for constants, as in evaluation mode.",
            _batch_variant(lambda xp, g, n, r, mean: r * g),
        ),
        ("running-statistics", "saved-value term", "typical"): (
            "The running variance, still 1, is used where the batch's is due.",
            batch_norm_running_vjp,
        ),
        ("no-projection", "term", "typical"): (
            "The projection on the channel is missing: sigma is taken for a constant.",
            _batch_variant(lambda xp, g, n, r, mean: r * (g - mean(g))),
        ),
        ("per-item", "index", "typical"): (
            "The means are taken over the pixels of each item alone.",
            _batch_variant(axes=(-1,)),
        ),
        ("per-pixel", "index", "typical"): (
            "The means are taken over the items of each pixel alone.",
            _batch_variant(axes=(-3,)),
        ),
        ("over-channels", "index", "cubic"): (
            "The means are taken over items and channels.",
            _batch_variant(axes=(-3, -2)),
        ),
        ("unbiased", "scale reduction", "two-items"): (
            "The variance is divided by n - 1, as in the running statistics.",
            _batch_variant(ddof=1),
        ),
        ("dw-mean", "reduction", "typical"): (
            "dw is the mean over items.",
            mutate.scaled(batch_norm_vjp, 1, lambda xp, x, w, b, **attrs: 1 / len(x)),
            {"dialects": ("affine",)},
        ),
        ("db-one-sum", "broadcast", "typical"): (
            "db is one sum over all channels.",
            mutate.output(
                batch_norm_vjp,
                2,
                lambda xp, db, x, w, b, **attrs: xp.broadcast_to(xp.sum(db), db.shape),
            ),
            {"dialects": ("affine",)},
        ),
        ("dw-db-exchanged", "slot", "typical"): (
            "dw and db stand in each other's place.",
            mutate.swapped(batch_norm_vjp, 1, 2),
            {"dialects": ("affine",)},
        ),
        ("eps-default", "attribute eps", "eps-0.1"): (
            "eps is 1e-5, whatever forward was given.",
            mutate.attribute(batch_norm_vjp, eps=1e-5),
        ),
        ("eps-omitted", "non-finite eps", "constant-channel"): (
            "sigma is recomputed without eps: 0/0 for a constant channel.",
            mutate.attribute(batch_norm_vjp, eps=0.0),
        ),
    },
)

# ── l2_normalize ─────────────────────────────────────────────────────────────────────────────


def _l2_variant(dx: Callable[..., Any]):
    """The VJP with another `dx(xp, ct, x, length)`, outside the ball of radius eps."""

    def vjp(xp, ct, x, *, eps=1e-12, inside=False):
        squares = xp.sum(x * x, axis=-1, keepdims=True)
        if inside:
            return dx(xp, ct, x, xp.sqrt(squares + eps))
        outer = dx(xp, ct, x, xp.maximum(xp.sqrt(squares), eps))
        return xp.where(xp.sqrt(squares) < eps, ct / eps, outer)

    return vjp


def _dot(xp: Any, a: Any, b: Any) -> Any:
    return xp.sum(a * b, axis=-1, keepdims=True)


def _l2_first_row(xp: Any, ct: Any, x: Any, length: Any) -> Any:
    length = _first_row(xp, length)
    n = x / length
    return (ct - n * _dot(xp, ct, n)) / length


def _l2_block(xp: Any, ct: Any, x: Any, length: Any) -> Any:
    n = x / length
    return (ct - n * _dot(xp, ct[..., :64], n[..., :64])) / length


def l2_normalize_in_the_ball_vjp(xp, ct, x, *, eps=1e-12, inside=False):
    squares = xp.sum(x * x, axis=-1, keepdims=True)
    length = xp.sqrt(squares + eps) if inside else xp.maximum(xp.sqrt(squares), eps)
    n = x / length
    return (ct - n * _dot(xp, ct, n)) / length


def l2_normalize_unguarded_vjp(xp, ct, x, *, eps=1e-12, inside=False):
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    n = x / length
    return (ct - n * _dot(xp, ct, n)) / length


def l2_normalize_twice_vjp(xp, ct, x, *, eps=1e-12, inside=False):
    root = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    g = l2_normalize_vjp(xp, ct, x, eps=eps, inside=inside)
    n = x / eps
    return xp.where(root == eps, g - n * _dot(xp, ct, n) / eps, g)


MUTANTS += mutant_table(
    "l2_normalize",
    {
        ("no-projection", "term", "typical"): (
            "The projection is missing: the norm is taken for a constant.",
            _l2_variant(lambda xp, ct, x, length: ct / length),
        ),
        ("projection-sign", "sign", "typical"): (
            "The projection is added.",
            _l2_variant(
                lambda xp, ct, x, length: (ct + x * _dot(xp, ct, x) / (length * length)) / length
            ),
        ),
        ("projection-reads-x", "saved-value term scale", "scales"): (
            "The projection is formed with x, not with the normalised row.",
            _l2_variant(lambda xp, ct, x, length: (ct - x * _dot(xp, ct, x)) / length),
        ),
        ("projection-mean", "reduction term", "typical"): (
            "The projection is a mean over the row where it should be a sum.",
            _l2_variant(
                lambda xp, ct, x, length: (
                    (ct - x * _dot(xp, ct, x) / (length * length) / x.shape[-1]) / length
                )
            ),
        ),
        ("norm-once", "scale derivative", "scales"): (
            "The whole is not divided by the norm.",
            _l2_variant(lambda xp, ct, x, length: ct - x * _dot(xp, ct, x) / (length * length)),
        ),
        ("first-rows-norm", "index saved-value", "typical"): (
            "All rows are divided by the first row's norm.",
            _l2_variant(_l2_first_row),
        ),
        ("block-of-64", "shape accumulation term", "width-65"): (
            "The projection leaves out elements from 64 on.",
            _l2_variant(_l2_block),
        ),
        ("projection-in-the-ball", "derivative term", "inner"): (
            "The projection stays inside the ball, where the length is eps whatever x.",
            l2_normalize_in_the_ball_vjp,
            {"dialects": ("max",)},
        ),
        ("unguarded", "non-finite eps", "inner"): (
            "The row is divided by its norm, without eps: 0/0 for a row of zeros.",
            l2_normalize_unguarded_vjp,
        ),
        ("other-eps", "eps attribute", "eps-0.1"): (
            "eps stands under the root where it is a lower bound, and the reverse.",
            mutate.attribute(l2_normalize_vjp, inside=lambda inside, **_: not inside),
        ),
        ("eps-default", "attribute eps", "inner"): (
            "eps is 1e-12, whatever forward was given.",
            mutate.attribute(l2_normalize_vjp, eps=1e-12),
        ),
        ("twice-on-the-sphere", "kink", "on-the-sphere"): (
            "Where the norm equals eps, both branches of the bound contribute.",
            l2_normalize_twice_vjp,
            {"dialects": ("max",)},
        ),
    },
)

# ── qk_norm ──────────────────────────────────────────────────────────────────────────────────


def _qk(one: Callable[..., Any]):
    """The VJP of both halves by `one(xp, ct, x, w, other, **attrs)`."""

    def vjp(xp, ct, q, k, wq, wk, *, eps=1e-6, unit_offset=False):
        attrs = {"eps": eps, "unit_offset": unit_offset}
        dq, dwq = one(xp, ct[0], q, wq, k, **attrs)
        dk, dwk = one(xp, ct[1], k, wk, q, **attrs)
        return dq, dk, dwq, dwk

    return vjp


def _all_heads(xp: Any, ct: Any, x: Any, w: Any, other: Any, *, eps: float, unit_offset: bool):
    flat = (*x.shape[:-2], x.shape[-2] * x.shape[-1])
    g = ct * (1 + w if unit_offset else w)
    dx, _ = rms_norm_vjp(
        xp, xp.reshape(g, flat), xp.reshape(x, flat), xp.full(flat[-1:], "1"), eps=eps
    )
    dw = rms_norm_vjp(xp, ct, x, w, eps=eps, unit_offset=unit_offset)[1]
    return xp.reshape(dx, x.shape), dw


def _last_head(xp: Any, ct: Any, x: Any, w: Any, other: Any, *, eps: float, unit_offset: bool):
    dx, _ = rms_norm_vjp(xp, ct, x, w, eps=eps, unit_offset=unit_offset)
    n = x * _rms(xp, x, eps)
    return dx, xp.reduce_to((ct * n)[..., -1:, :], w)


def _first_token(xp: Any, ct: Any, x: Any, w: Any, other: Any, *, eps: float, unit_offset: bool):
    dx, _ = rms_norm_vjp(xp, ct, x, w, eps=eps, unit_offset=unit_offset)
    n = x * _rms(xp, x, eps)
    return dx, xp.reduce_to((ct * n)[..., :1, :, :], w)


def _first_head(xp: Any, ct: Any, x: Any, w: Any, other: Any, *, eps: float, unit_offset: bool):
    r = _first_row(xp, _rms(xp, x, eps))
    n = x * r
    g = ct * (1 + w if unit_offset else w)
    return r * (g - n * _mean(xp, g * n)), xp.reduce_to(ct * n, w)


def _others_scale(xp: Any, ct: Any, x: Any, w: Any, other: Any, *, eps: float, unit_offset: bool):
    if other.shape != x.shape:
        return rms_norm_vjp(xp, ct, x, w, eps=eps, unit_offset=unit_offset)
    r = _rms(xp, other, eps)
    n = x * r
    g = ct * (1 + w if unit_offset else w)
    return r * (g - n * _mean(xp, g * n)), xp.reduce_to(ct * n, w)


def qk_norm_k_constant_vjp(xp, ct, q, k, wq, wk, *, eps=1e-6, unit_offset=False):
    dq, _, dwq, dwk = qk_norm_vjp(xp, ct, q, k, wq, wk, eps=eps, unit_offset=unit_offset)
    return dq, ct[1] * (1 + wk if unit_offset else wk) * _rms(xp, k, eps), dwq, dwk


MUTANTS += mutant_table(
    "qk_norm",
    {
        ("weights-exchanged", "slot", "typical"): (
            "The gradients of the two weights stand in each other's place.",
            mutate.swapped(qk_norm_vjp, 2, 3),
        ),
        ("one-weight", "saved-value slot", "typical"): (
            "dq is formed with k's weight.",
            mutate.primal(qk_norm_vjp, 2, lambda xp, q, k, wq, wk, **attrs: wk),
        ),
        ("all-heads-together", "index", "typical"): (
            "The statistics are those of all heads of a token together.",
            _qk(_all_heads),
        ),
        ("first-heads-scale", "index saved-value", "typical"): (
            "All heads are divided by the first head's rms.",
            _qk(_first_head),
        ),
        ("others-scale", "saved-value shape", "square"): (
            "q reads the scale saved for k, and the reverse, where the shapes allow it.",
            _qk(_others_scale),
        ),
        ("weights-last-head", "accumulation broadcast", "typical"): (
            "Each head overwrites the gradient of the weights.",
            _qk(_last_head),
        ),
        ("weights-first-token", "broadcast accumulation", "typical"): (
            "The gradients of the weights are those of the first token.",
            _qk(_first_token),
        ),
        ("k-scale-constant", "term", "typical"): (
            "The projection is missing from dk.",
            qk_norm_k_constant_vjp,
        ),
        ("no-gradient-of-wk", "slot", "typical"): (
            "The weight of k gets zeros.",
            mutate.output(qk_norm_vjp, 3, mutate.zeros),
        ),
        ("offset-ignored", "attribute", "typical"): (
            "The gradients are multiplied by w where forward multiplied by 1 + w.",
            mutate.attribute(qk_norm_vjp, unit_offset=False),
            {"dialects": ("unit-offset",)},
        ),
        ("eps-default", "attribute eps", "eps-0.1"): (
            "eps is 1e-6, whatever forward was given.",
            mutate.attribute(qk_norm_vjp, eps=1e-6),
        ),
        ("eps-omitted", "eps non-finite", "tiny"): (
            "rms is recomputed without eps.",
            mutate.attribute(qk_norm_vjp, eps=0.0),
        ),
    },
)
