"""Mutants of the operators in `gradcheck_cases.norm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradcheck.power import mutate
from gradcheck.spec.mutant import Mutant
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

# ── What several of them share ───────────────────────────────────────────────────────────────


def _mean(xp: Any, x: Any) -> Any:
    return xp.mean(x, axis=-1, keepdims=True)


def _rms(xp: Any, x: Any, eps: float) -> Any:
    return 1 / xp.sqrt(_mean(xp, x * x) + eps)


_first_row = mutate.first_for_all(-2)


def _rows_before(xp: Any, r: Any) -> Any:
    """Each row's neighbour above; the first one's own."""
    return xp.concatenate([r[..., :1, :], r[..., :-1, :]], axis=-2)


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

RMS_NORM = (
    Mutant(
        op="rms_norm",
        name="second-term-short",
        label="T",
        also=("F", "V"),
        killer="typical",
        says="The second term of dx lacks one factor 1/rms.",
        modelled_on="a Llama trainer's cpu_rmsnorm_backward",
        vjp=_rms_variant(dx=lambda xp, g, x, n, r: r * g - n * r * _mean(xp, g * x)),
    ),
    Mutant(
        op="rms_norm",
        name="no-projection",
        label="T",
        killer="typical",
        says="The second term of dx is missing: rms is taken for a constant.",
        vjp=_rms_variant(dx=lambda xp, g, x, n, r: r * g),
    ),
    Mutant(
        op="rms_norm",
        name="projection-sum",
        label="R",
        also=("T",),
        killer="typical",
        says="The projection is a sum over the row where it should be a mean.",
        vjp=_rms_variant(
            dx=lambda xp, g, x, n, r: r * (g - n * xp.sum(g * n, axis=-1, keepdims=True))
        ),
    ),
    Mutant(
        op="rms_norm",
        name="root-of-width",
        label="F",
        also=("T",),
        killer="width-64",
        says="The projection is divided by the root of d.",
        vjp=_rms_variant(
            dx=lambda xp, g, x, n, r: (
                r * (g - n * xp.sum(g * n, axis=-1, keepdims=True) / xp.sqrt_of(x.shape[-1]))
            )
        ),
    ),
    Mutant(
        op="rms_norm",
        name="eps-omitted",
        label="E",
        also=("N",),
        killer="tiny",
        says="The backward recomputes rms without eps.",
        vjp=mutate.attribute(rms_norm_vjp, eps=0.0),
    ),
    Mutant(
        op="rms_norm",
        name="eps-outside",
        label="E",
        killer="tiny",
        says="eps is added to the root, not under it.",
        vjp=rms_norm_eps_outside_vjp,
    ),
    Mutant(
        op="rms_norm",
        name="eps-default",
        label="P",
        also=("E",),
        killer="eps-0.1",
        says="eps is 1e-5, whatever forward was given.",
        vjp=mutate.attribute(rms_norm_vjp, eps=1e-5),
    ),
    Mutant(
        op="rms_norm",
        name="no-gain",
        label="F",
        also=("D",),
        killer="typical",
        says="The weight is left out of dx.",
        vjp=rms_norm_no_gain_vjp,
        dialects=WEIGHTED,
    ),
    Mutant(
        op="rms_norm",
        name="offset-ignored",
        label="P",
        killer="typical",
        says="dx is multiplied by w where forward multiplied by 1 + w.",
        vjp=mutate.attribute(rms_norm_vjp, unit_offset=False),
        dialects=("unit-offset",),
    ),
    Mutant(
        op="rms_norm",
        name="dw-mean",
        label="R",
        killer="typical",
        says="dw is the mean over rows.",
        vjp=_rms_variant(dw=lambda xp, ct, x, n, w, dx: xp.mean(ct * n, tuple(range(x.ndim - 1)))),
        dialects=WEIGHTED,
    ),
    Mutant(
        op="rms_norm",
        name="dw-last-row",
        label="A",
        also=("B",),
        killer="typical",
        says="Each row overwrites dw.",
        vjp=_rms_variant(dw=lambda xp, ct, x, n, w, dx: _last_row(xp, ct * n, w)),
        dialects=WEIGHTED,
    ),
    Mutant(
        op="rms_norm",
        name="dw-first-item",
        label="B",
        also=("A", "I"),
        killer="batched",
        says="dw is summed over the rows of the first item only.",
        vjp=_rms_variant(
            dw=lambda xp, ct, x, n, w, dx: xp.reduce_to((ct * n)[0] if x.ndim > 2 else ct * n, w)
        ),
        dialects=WEIGHTED,
    ),
    Mutant(
        op="rms_norm",
        name="dw-reads-x",
        label="V",
        also=("F", "D"),
        killer="row-scales",
        says="dw is formed with x, not with the normalised row.",
        vjp=_rms_variant(dw=lambda xp, ct, x, n, w, dx: xp.reduce_to(ct * x, w)),
        dialects=WEIGHTED,
    ),
    Mutant(
        op="rms_norm",
        name="dw-reads-dx",
        label="X",
        also=("V",),
        killer="typical",
        says="dx is written over the cotangent before dw reads it.",
        vjp=_rms_variant(dw=lambda xp, ct, x, n, w, dx: xp.reduce_to(dx * n, w)),
        dialects=WEIGHTED,
    ),
    Mutant(
        op="rms_norm",
        name="from-output",
        label="N",
        killer="zero-gain",
        says="The normalised row is recovered as y divided by the gain: 0/0.",
        vjp=rms_norm_from_output_vjp,
        dialects=WEIGHTED,
    ),
    Mutant(
        op="rms_norm",
        name="exchanged",
        label="G",
        killer="typical",
        says="x and the cotangent are passed in each other's place.",
        vjp=rms_norm_exchanged_vjp,
    ),
    Mutant(
        op="rms_norm",
        name="centred",
        label="D",
        also=("V",),
        killer="offset",
        says="x is centred first, as in layer_norm.",
        vjp=rms_norm_centred_vjp,
    ),
    Mutant(
        op="rms_norm",
        name="first-rows-rms",
        label="I",
        also=("V",),
        killer="row-scales",
        says="All rows are divided by the first row's rms.",
        vjp=_rms_variant(
            dx=lambda xp, g, x, n, r: (
                _first_row(xp, r)
                * (g - x * _first_row(xp, r) * _mean(xp, g * x * _first_row(xp, r)))
            )
        ),
    ),
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


LAYER_NORM = (
    Mutant(
        op="layer_norm",
        name="no-mean-term",
        label="T",
        killer="typical",
        says="The mean of the cotangent is not subtracted: mu is taken for a constant.",
        vjp=_layer_variant(dx=lambda xp, g, n, r: r * (g - n * _mean(xp, g * n))),
    ),
    Mutant(
        op="layer_norm",
        name="no-projection",
        label="T",
        killer="typical",
        says="The projection on the row is missing: sigma is taken for a constant.",
        vjp=_layer_variant(dx=lambda xp, g, n, r: r * (g - _mean(xp, g))),
    ),
    Mutant(
        op="layer_norm",
        name="scale-squared",
        label="F",
        also=("D",),
        killer="typical",
        says="dx is multiplied by the square of the saved 1/sigma.",
        vjp=_layer_variant(
            dx=lambda xp, g, n, r: r * r * (g - _mean(xp, g) - n * _mean(xp, g * n))
        ),
    ),
    Mutant(
        op="layer_norm",
        name="scale-stale",
        label="V",
        also=("I",),
        killer="typical",
        says="The saved 1/sigma is that of the row before.",
        vjp=_layer_variant(statistics=_stale_scale),
    ),
    Mutant(
        op="layer_norm",
        name="mean-stale",
        label="V",
        also=("I",),
        killer="typical",
        says="The saved mean is that of the row before.",
        vjp=_layer_variant(statistics=_stale_mean),
    ),
    Mutant(
        op="layer_norm",
        name="uncentred",
        label="V",
        killer="offset-100",
        says="The saved row is x over sigma: its mean was never subtracted.",
        vjp=_layer_variant(statistics=lambda xp, x, n, r, eps: (x * r, r)),
    ),
    Mutant(
        op="layer_norm",
        name="one-pass",
        label="O",
        killer="offset-1000",
        says="The variance is the mean of squares minus the square of the mean, which cancels.",
        vjp=_layer_variant(statistics=_one_pass),
        dtype="float32",
    ),
    Mutant(
        op="layer_norm",
        name="unbiased",
        label="F",
        also=("R",),
        killer="row-length-2",
        says="The variance is divided by d - 1.",
        vjp=_layer_variant(statistics=_unbiased),
    ),
    Mutant(
        op="layer_norm",
        name="eps-omitted",
        label="E",
        also=("N",),
        killer="near-constant",
        says="The backward recomputes sigma without eps.",
        vjp=mutate.attribute(layer_norm_vjp, eps=0.0),
    ),
    Mutant(
        op="layer_norm",
        name="eps-default",
        label="P",
        also=("E",),
        killer="eps-0.1",
        says="eps is 1e-5, whatever forward was given.",
        vjp=mutate.attribute(layer_norm_vjp, eps=1e-5),
    ),
    Mutant(
        op="layer_norm",
        name="dw-db-exchanged",
        label="G",
        killer="typical",
        says="dw and db stand in each other's place.",
        vjp=mutate.swapped(layer_norm_vjp, 1, 2),
        dialects=("affine",),
    ),
    Mutant(
        op="layer_norm",
        name="db-mean",
        label="R",
        killer="typical",
        says="db is the mean over rows.",
        vjp=mutate.scaled(
            layer_norm_vjp,
            2,
            lambda xp, x, w, b, *, eps=1e-5: x.shape[-1] / max(x.size, 1),
        ),
        dialects=("affine",),
    ),
    Mutant(
        op="layer_norm",
        name="dw-last-row",
        label="A",
        also=("B",),
        killer="typical",
        says="Each row overwrites dw.",
        vjp=_layer_variant(dw=lambda xp, ct, x, n, w: _last_row(xp, ct * n, w)),
        dialects=("affine",),
    ),
    Mutant(
        op="layer_norm",
        name="dw-first-item",
        label="B",
        also=("A", "I"),
        killer="batched",
        says="dw is summed over the rows of the first item only.",
        vjp=_layer_variant(
            dw=lambda xp, ct, x, n, w: xp.reduce_to((ct * n)[0] if x.ndim > 2 else ct * n, w)
        ),
        dialects=("affine",),
    ),
    Mutant(
        op="layer_norm",
        name="no-gain",
        label="F",
        also=("D",),
        killer="typical",
        says="The weight is left out of dx.",
        vjp=layer_norm_no_gain_vjp,
        dialects=("affine",),
    ),
    Mutant(
        op="layer_norm",
        name="from-output",
        label="N",
        killer="zero-weight",
        says="The normalised row is recovered as (y - b)/w: 0/0.",
        vjp=layer_norm_from_output_vjp,
        dialects=("affine",),
    ),
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


NORM = (
    Mutant(
        op="norm",
        name="no-mean-term",
        label="T",
        killer="typical",
        says="The mean of the cotangent is not subtracted: mu is taken for a constant.",
        vjp=_norm_variant(dx=lambda xp, g, n, r: r * (g - n * _mean(xp, g * n))),
    ),
    Mutant(
        op="norm",
        name="no-projection",
        label="T",
        killer="typical",
        says="The projection on the row is missing: sigma is taken for a constant.",
        vjp=_norm_variant(dx=lambda xp, g, n, r: r * (g - _mean(xp, g))),
    ),
    Mutant(
        op="norm",
        name="of-rms-norm",
        label="D",
        killer="typical",
        says="The backward is that of rms_norm.",
        vjp=norm_rms_vjp,
    ),
    Mutant(
        op="norm",
        name="eps-outside",
        label="E",
        killer="near-constant",
        says="eps is added to the root, not under it.",
        vjp=norm_eps_outside_vjp,
    ),
    Mutant(
        op="norm",
        name="eps-omitted",
        label="E",
        also=("N",),
        killer="near-constant",
        says="The backward recomputes sigma without eps.",
        vjp=mutate.attribute(norm_vjp, eps=0.0),
    ),
    Mutant(
        op="norm",
        name="eps-default",
        label="P",
        also=("E",),
        killer="eps-0.1",
        says="eps is 1e-5, whatever forward was given.",
        vjp=mutate.attribute(norm_vjp, eps=1e-5),
    ),
    Mutant(
        op="norm",
        name="unbiased",
        label="F",
        also=("R",),
        killer="typical",
        says="The variance is divided by d - 1.",
        vjp=_norm_variant(statistics=_unbiased),
    ),
    Mutant(
        op="norm",
        name="projection-reads-x",
        label="V",
        also=("T",),
        killer="scales",
        says="The projection is formed with x, not with the normalised row.",
        vjp=_norm_variant(statistics=lambda xp, x, n, r, eps: (x, r)),
    ),
    Mutant(
        op="norm",
        name="first-rows-scale",
        label="I",
        also=("V",),
        killer="scales",
        says="All rows are divided by the first row's sigma.",
        vjp=_norm_variant(statistics=_global),
    ),
    Mutant(
        op="norm",
        name="block-of-64",
        label="W",
        also=("A",),
        killer="width-65",
        says="The statistics leave out elements from 64 on.",
        vjp=_norm_variant(statistics=_first_64),
    ),
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


RMS_NORM_BACK = (
    Mutant(
        op="rms_norm_back",
        name="factor-two",
        label="T",
        also=("F", "DD"),
        killer="typical",
        says="The term of r cubed is differentiated with a factor 2 in place of 3.",
        vjp=_back_variant(_back_factor_two),
    ),
    Mutant(
        op="rms_norm_back",
        name="scale-once",
        label="F",
        also=("D", "DD"),
        killer="scales",
        says="dx has one factor r where it needs two.",
        vjp=_back_variant(_back_scale),
    ),
    Mutant(
        op="rms_norm_back",
        name="no-g-term",
        label="T",
        also=("DD",),
        killer="typical",
        says="The term of dx in the direction of g is missing.",
        vjp=_back_variant(_back_without_g),
    ),
    Mutant(
        op="rms_norm_back",
        name="scale-constant",
        label="T",
        also=("DD",),
        killer="typical",
        says="r is taken for a saved constant in the second derivative.",
        vjp=_back_variant(_back_fixed_scale),
    ),
    Mutant(
        op="rms_norm_back",
        name="sign",
        label="S",
        also=("DD",),
        killer="typical",
        says="dx has the other sign.",
        vjp=mutate.negated(rms_norm_back_vjp, 1),
    ),
    Mutant(
        op="rms_norm_back",
        name="no-gradient-of-x",
        label="G",
        also=("DD",),
        killer="typical",
        says="Only the cotangent's gradient is returned; that of x is zeros.",
        vjp=mutate.output(rms_norm_back_vjp, 1, mutate.zeros),
    ),
    Mutant(
        op="rms_norm_back",
        name="no-projection",
        label="T",
        also=("DD",),
        killer="typical",
        says="dg is ct r: its second term is missing.",
        vjp=rms_norm_back_no_projection_vjp,
    ),
    Mutant(
        op="rms_norm_back",
        name="slots-exchanged",
        label="G",
        also=("DD",),
        killer="typical",
        says="dx comes first, in the order of ggml's arguments.",
        vjp=mutate.swapped(rms_norm_back_vjp, 0, 1),
    ),
    Mutant(
        op="rms_norm_back",
        name="cotangents-exchanged",
        label="G",
        also=("DD",),
        killer="typical",
        says="g and the new cotangent are passed in each other's place (dx does not mind).",
        vjp=rms_norm_back_exchanged_vjp,
    ),
    Mutant(
        op="rms_norm_back",
        name="first-rows-rms",
        label="I",
        also=("V", "DD"),
        killer="scales",
        says="All rows are divided by the first row's rms.",
        vjp=rms_norm_back_first_row_vjp,
    ),
    Mutant(
        op="rms_norm_back",
        name="eps-default",
        label="P",
        also=("E", "DD"),
        killer="eps-0.1",
        says="eps is 1e-6, whatever forward was given.",
        vjp=mutate.attribute(rms_norm_back_vjp, eps=1e-6),
    ),
    Mutant(
        op="rms_norm_back",
        name="eps-omitted",
        label="E",
        also=("N", "DD"),
        killer="tiny",
        says="rms is recomputed without eps.",
        vjp=mutate.attribute(rms_norm_back_vjp, eps=0.0),
    ),
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


GROUP_NORM = (
    Mutant(
        op="group_norm",
        name="groups-ignored",
        label="P",
        killer="typical",
        says="All channels form one group.",
        vjp=mutate.attribute(group_norm_vjp, groups=1),
    ),
    Mutant(
        op="group_norm",
        name="dealt-out",
        label="I",
        also=("L",),
        killer="three-groups",
        says="Channels are dealt out to the groups one by one (c mod G).",
        vjp=group_norm_dealt_out_vjp,
    ),
    Mutant(
        op="group_norm",
        name="no-mean-term",
        label="T",
        killer="typical",
        says="The mean of the cotangent is not subtracted: mu is taken for a constant.",
        vjp=_group_variant(lambda xp, g, n, r: r * (g - n * _mean(xp, g * n))),
    ),
    Mutant(
        op="group_norm",
        name="no-projection",
        label="T",
        killer="typical",
        says="The projection on the group is missing: sigma is taken for a constant.",
        vjp=_group_variant(lambda xp, g, n, r: r * (g - _mean(xp, g))),
    ),
    Mutant(
        op="group_norm",
        name="all-elements-divided-by",
        label="R",
        also=("T",),
        killer="typical",
        says="The sums of a group are divided by the number of elements of all groups.",
        vjp=_group_variant(
            lambda xp, g, n, r: r * (g - (_mean(xp, g) + n * _mean(xp, g * n)) / g.shape[-2])
        ),
    ),
    Mutant(
        op="group_norm",
        name="gain-late",
        label="D",
        killer="typical",
        says="The weight is applied after the means were taken, where it differs by channel.",
        vjp=group_norm_gain_late_vjp,
        dialects=("affine",),
    ),
    Mutant(
        op="group_norm",
        name="dw-first-item",
        label="B",
        also=("A", "I"),
        killer="typical",
        says="dw is that of the first item only.",
        vjp=group_norm_dw_first_item_vjp,
        dialects=("affine",),
    ),
    Mutant(
        op="group_norm",
        name="db-mean",
        label="R",
        killer="typical",
        says="db is the mean over pixels.",
        vjp=mutate.scaled(group_norm_vjp, 2, lambda xp, x, w, b, **attrs: 1 / x.shape[-1]),
        dialects=("affine",),
    ),
    Mutant(
        op="group_norm",
        name="dw-db-exchanged",
        label="G",
        killer="typical",
        says="dw and db stand in each other's place.",
        vjp=mutate.swapped(group_norm_vjp, 1, 2),
        dialects=("affine",),
    ),
    Mutant(
        op="group_norm",
        name="eps-default",
        label="P",
        also=("E",),
        killer="eps-0.1",
        says="eps is 1e-5, whatever forward was given.",
        vjp=mutate.attribute(group_norm_vjp, eps=1e-5),
    ),
    Mutant(
        op="group_norm",
        name="eps-omitted",
        label="N",
        also=("E",),
        killer="constant-group",
        says="sigma is recomputed without eps: 0/0 for a constant group.",
        vjp=mutate.attribute(group_norm_vjp, eps=0.0),
    ),
    Mutant(
        op="group_norm",
        name="first-groups-scale",
        label="I",
        also=("V",),
        killer="typical",
        says="All groups are multiplied by the first group's 1/sigma.",
        vjp=_group_variant(
            lambda xp, g, n, r: _first_row(xp, r) * (g - _mean(xp, g) - n * _mean(xp, g * n))
        ),
    ),
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


BATCH_NORM = (
    Mutant(
        op="batch_norm",
        name="evaluation-mode",
        label="T",
        killer="typical",
        says="The statistics are taken for constants, as in evaluation mode.",
        vjp=_batch_variant(lambda xp, g, n, r, mean: r * g),
    ),
    Mutant(
        op="batch_norm",
        name="running-statistics",
        label="V",
        also=("T",),
        killer="typical",
        says="The running variance, still 1, is used where the batch's is due.",
        vjp=batch_norm_running_vjp,
    ),
    Mutant(
        op="batch_norm",
        name="no-projection",
        label="T",
        killer="typical",
        says="The projection on the channel is missing: sigma is taken for a constant.",
        vjp=_batch_variant(lambda xp, g, n, r, mean: r * (g - mean(g))),
    ),
    Mutant(
        op="batch_norm",
        name="per-item",
        label="I",
        killer="typical",
        says="The means are taken over the pixels of each item alone.",
        vjp=_batch_variant(axes=(-1,)),
    ),
    Mutant(
        op="batch_norm",
        name="per-pixel",
        label="I",
        killer="typical",
        says="The means are taken over the items of each pixel alone.",
        vjp=_batch_variant(axes=(-3,)),
    ),
    Mutant(
        op="batch_norm",
        name="over-channels",
        label="I",
        killer="cubic",
        says="The means are taken over items and channels.",
        vjp=_batch_variant(axes=(-3, -2)),
    ),
    Mutant(
        op="batch_norm",
        name="unbiased",
        label="F",
        also=("R",),
        killer="two-items",
        says="The variance is divided by n - 1, as in the running statistics.",
        vjp=_batch_variant(ddof=1),
    ),
    Mutant(
        op="batch_norm",
        name="dw-mean",
        label="R",
        killer="typical",
        says="dw is the mean over items.",
        vjp=mutate.scaled(batch_norm_vjp, 1, lambda xp, x, w, b, **attrs: 1 / len(x)),
        dialects=("affine",),
    ),
    Mutant(
        op="batch_norm",
        name="db-one-sum",
        label="B",
        killer="typical",
        says="db is one sum over all channels.",
        vjp=mutate.output(
            batch_norm_vjp,
            2,
            lambda xp, db, x, w, b, **attrs: xp.broadcast_to(xp.sum(db), db.shape),
        ),
        dialects=("affine",),
    ),
    Mutant(
        op="batch_norm",
        name="dw-db-exchanged",
        label="G",
        killer="typical",
        says="dw and db stand in each other's place.",
        vjp=mutate.swapped(batch_norm_vjp, 1, 2),
        dialects=("affine",),
    ),
    Mutant(
        op="batch_norm",
        name="eps-default",
        label="P",
        also=("E",),
        killer="eps-0.1",
        says="eps is 1e-5, whatever forward was given.",
        vjp=mutate.attribute(batch_norm_vjp, eps=1e-5),
    ),
    Mutant(
        op="batch_norm",
        name="eps-omitted",
        label="N",
        also=("E",),
        killer="constant-channel",
        says="sigma is recomputed without eps: 0/0 for a constant channel.",
        vjp=mutate.attribute(batch_norm_vjp, eps=0.0),
    ),
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


L2_NORMALIZE = (
    Mutant(
        op="l2_normalize",
        name="no-projection",
        label="T",
        killer="typical",
        says="The projection is missing: the norm is taken for a constant.",
        vjp=_l2_variant(lambda xp, ct, x, length: ct / length),
    ),
    Mutant(
        op="l2_normalize",
        name="projection-sign",
        label="S",
        killer="typical",
        says="The projection is added.",
        vjp=_l2_variant(
            lambda xp, ct, x, length: (ct + x * _dot(xp, ct, x) / (length * length)) / length
        ),
    ),
    Mutant(
        op="l2_normalize",
        name="projection-reads-x",
        label="V",
        also=("T", "F"),
        killer="scales",
        says="The projection is formed with x, not with the normalised row.",
        vjp=_l2_variant(lambda xp, ct, x, length: (ct - x * _dot(xp, ct, x)) / length),
    ),
    Mutant(
        op="l2_normalize",
        name="projection-mean",
        label="R",
        also=("T",),
        killer="typical",
        says="The projection is a mean over the row where it should be a sum.",
        vjp=_l2_variant(
            lambda xp, ct, x, length: (
                (ct - x * _dot(xp, ct, x) / (length * length) / x.shape[-1]) / length
            )
        ),
    ),
    Mutant(
        op="l2_normalize",
        name="norm-once",
        label="F",
        also=("D",),
        killer="scales",
        says="The whole is not divided by the norm.",
        vjp=_l2_variant(lambda xp, ct, x, length: ct - x * _dot(xp, ct, x) / (length * length)),
    ),
    Mutant(
        op="l2_normalize",
        name="first-rows-norm",
        label="I",
        also=("V",),
        killer="typical",
        says="All rows are divided by the first row's norm.",
        vjp=_l2_variant(_l2_first_row),
    ),
    Mutant(
        op="l2_normalize",
        name="block-of-64",
        label="W",
        also=("A", "T"),
        killer="width-65",
        says="The projection leaves out elements from 64 on.",
        vjp=_l2_variant(_l2_block),
    ),
    Mutant(
        op="l2_normalize",
        name="projection-in-the-ball",
        label="D",
        also=("T",),
        killer="inner",
        says="The projection stays inside the ball, where the length is eps whatever x.",
        vjp=l2_normalize_in_the_ball_vjp,
        dialects=("max",),
    ),
    Mutant(
        op="l2_normalize",
        name="unguarded",
        label="N",
        also=("E",),
        killer="inner",
        says="The row is divided by its norm, without eps: 0/0 for a row of zeros.",
        vjp=l2_normalize_unguarded_vjp,
    ),
    Mutant(
        op="l2_normalize",
        name="other-eps",
        label="E",
        also=("P",),
        killer="eps-0.1",
        says="eps stands under the root where it is a lower bound, and the reverse.",
        vjp=mutate.attribute(l2_normalize_vjp, inside=lambda inside, **_: not inside),
    ),
    Mutant(
        op="l2_normalize",
        name="eps-default",
        label="P",
        also=("E",),
        killer="inner",
        says="eps is 1e-12, whatever forward was given.",
        vjp=mutate.attribute(l2_normalize_vjp, eps=1e-12),
    ),
    Mutant(
        op="l2_normalize",
        name="twice-on-the-sphere",
        label="K",
        killer="on-the-sphere",
        says="Where the norm equals eps, both branches of the bound contribute.",
        vjp=l2_normalize_twice_vjp,
        dialects=("max",),
    ),
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


QK_NORM = (
    Mutant(
        op="qk_norm",
        name="weights-exchanged",
        label="G",
        killer="typical",
        says="The gradients of the two weights stand in each other's place.",
        vjp=mutate.swapped(qk_norm_vjp, 2, 3),
    ),
    Mutant(
        op="qk_norm",
        name="one-weight",
        label="V",
        also=("G",),
        killer="typical",
        says="dq is formed with k's weight.",
        vjp=mutate.primal(qk_norm_vjp, 2, lambda xp, q, k, wq, wk, **attrs: wk),
    ),
    Mutant(
        op="qk_norm",
        name="all-heads-together",
        label="I",
        killer="typical",
        says="The statistics are those of all heads of a token together.",
        vjp=_qk(_all_heads),
    ),
    Mutant(
        op="qk_norm",
        name="first-heads-scale",
        label="I",
        also=("V",),
        killer="typical",
        says="All heads are divided by the first head's rms.",
        vjp=_qk(_first_head),
    ),
    Mutant(
        op="qk_norm",
        name="others-scale",
        label="V",
        also=("W",),
        killer="square",
        says="q reads the scale saved for k, and the reverse, where the shapes allow it.",
        vjp=_qk(_others_scale),
    ),
    Mutant(
        op="qk_norm",
        name="weights-last-head",
        label="A",
        also=("B",),
        killer="typical",
        says="Each head overwrites the gradient of the weights.",
        vjp=_qk(_last_head),
    ),
    Mutant(
        op="qk_norm",
        name="weights-first-token",
        label="B",
        also=("A",),
        killer="typical",
        says="The gradients of the weights are those of the first token.",
        vjp=_qk(_first_token),
    ),
    Mutant(
        op="qk_norm",
        name="k-scale-constant",
        label="T",
        killer="typical",
        says="The projection is missing from dk.",
        vjp=qk_norm_k_constant_vjp,
    ),
    Mutant(
        op="qk_norm",
        name="no-gradient-of-wk",
        label="G",
        killer="typical",
        says="The weight of k gets zeros.",
        vjp=mutate.output(qk_norm_vjp, 3, mutate.zeros),
    ),
    Mutant(
        op="qk_norm",
        name="offset-ignored",
        label="P",
        killer="typical",
        says="The gradients are multiplied by w where forward multiplied by 1 + w.",
        vjp=mutate.attribute(qk_norm_vjp, unit_offset=False),
        dialects=("unit-offset",),
    ),
    Mutant(
        op="qk_norm",
        name="eps-default",
        label="P",
        also=("E",),
        killer="eps-0.1",
        says="eps is 1e-6, whatever forward was given.",
        vjp=mutate.attribute(qk_norm_vjp, eps=1e-6),
    ),
    Mutant(
        op="qk_norm",
        name="eps-omitted",
        label="E",
        also=("N",),
        killer="tiny",
        says="rms is recomputed without eps.",
        vjp=mutate.attribute(qk_norm_vjp, eps=0.0),
    ),
)

MUTANTS = (
    *RMS_NORM,
    *LAYER_NORM,
    *NORM,
    *RMS_NORM_BACK,
    *GROUP_NORM,
    *BATCH_NORM,
    *L2_NORMALIZE,
    *QK_NORM,
)
