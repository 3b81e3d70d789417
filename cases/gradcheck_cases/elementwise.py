"""Element-wise arithmetic: sums, products and powers. Axes: t rows, d features."""

from __future__ import annotations

from gradcheck.spec import Dialect, OpSpec, Sample

# ── add ──────────────────────────────────────────────────────────────────────────────────────


def add_forward(xp, x, y):
    return x + y


def add_vjp(xp, ct, x, y):
    return xp.reduce_to(ct, x), xp.reduce_to(ct, y)


add = OpSpec(
    name="add",
    signature="(),()->()",
    forward=add_forward,
    vjp=add_vjp,
    formula=r"z = x + y",
    source="llmgo residualForward; ggml_add",
    dialects=(
        Dialect(name="residual", says="GPT-2, Llama, Gemma: two operands of one shape"),
        Dialect(name="broadcast", says="ggml, NumPy: an operand is repeated along an axis"),
    ),
    samples=(
        Sample(
            name="typical",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(3, 5)),
            hunts="a cotangent that reaches one operand only, or half of it each",
            dialects=("residual",),
        ),
        Sample(
            name="cube",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(2, 3, 5)),
            hunts="elements counted over the last two axes only",
            dialects=("residual",),
        ),
        Sample(
            name="single",
            primals=lambda draw: (draw.normal(1), draw.normal(1)),
            hunts="a vector loop that forgets its remainder",
            dialects=("residual",),
        ),
        Sample(
            name="unequal-size",
            primals=lambda draw: (draw.normal(3, 5, scale=1024.0), draw.normal(3, 5)),
            hunts="a cotangent that is scaled by the operand",
            dialects=("residual",),
        ),
        Sample(
            name="row",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(5)),
            hunts="dy left unsummed, averaged, or taken from one row",
            dialects=("broadcast",),
        ),
        Sample(
            name="row-square",
            primals=lambda draw: (draw.normal(4, 4), draw.normal(4)),
            hunts="dy summed over the wrong axis, which only a square forgives",
            dialects=("broadcast",),
        ),
        Sample(
            name="row-batched",
            primals=lambda draw: (draw.normal(2, 3, 5), draw.normal(5)),
            hunts="dy summed over one batch axis instead of all",
            dialects=("broadcast",),
        ),
        Sample(
            name="column",
            primals=lambda draw: (draw.normal(3, 5), draw.normal(3, 1)),
            hunts="only leading axes are summed, a stretched last one is not",
            dialects=("broadcast",),
        ),
        Sample(
            name="both-stretched",
            primals=lambda draw: (draw.normal(1, 5), draw.normal(3, 1)),
            hunts="dx taken to have the output's shape",
            dialects=("broadcast",),
        ),
    ),
)

OPERATORS = (add,)
