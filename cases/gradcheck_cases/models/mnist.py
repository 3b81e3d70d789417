"""Readers of handwritten digits: two dense layers; two pooled convolutions and a dense layer.

Axes: n images, h × w pixels in [0, 1], c features (c1, c2: after each convolution), v classes.
Weights are large enough for activations of about 8, so that few come near a kink; what comes too
near is drawn again. Biases are odd multiples of 2^-20, so that no activation is exactly zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Drawn, Program, Stage
from gradcheck_cases import activation, convolution, elementwise, linear, loss, reduction, shape
from gradcheck_cases.models.tensors import ids

LOUD = 8.0
"""Standard deviation of the first layers' activations, about."""


def images(n: int, *size: int, border: int = 0) -> Drawn:
    """Grey pixels; with a `border` of exact zeros, and a first image that is blank altogether."""

    def drawn(draw: Any) -> Any:
        pixels = draw.uniform(0.0, 1.0, n, *size)
        if border:
            rows, columns = (np.arange(side) for side in size[-2:])
            inside = (
                (rows >= border) & (rows < size[-2] - border),
                (columns >= border) & (columns < size[-1] - border),
            )
            pixels = pixels * (inside[0][:, None] & inside[1])
            pixels[0] = 0.0
        return pixels

    return drawn


def loud(fan_in: int, *shape: int) -> Drawn:
    """Weights that turn `fan_in` pixels into values of about `LOUD`."""
    return lambda draw: draw.normal(*shape, scale=_loudness(fan_in))


def _loudness(fan_in: int) -> float:
    return 2.0 ** round(math.log2(2 * LOUD / math.sqrt(fan_in)))


def kernel(scale: float, *shape: int) -> Drawn:
    """Normal values times `scale`, each tap with a power of two of its own below their grid.

    So no sum of taps cancels. Otherwise a blank image may have the same value, by accident, at a
    place that sees its edge and at one that does not: they tie in a pooling window, and the loss
    has no derivative there.
    """
    own = 2.0 ** (np.arange(math.prod(shape[-2:])).reshape(shape[-2:]) - 16)
    return lambda draw: scale * (draw.normal(*shape) + own)


def bias(*shape: int) -> Drawn:
    """Biases of 1/8 and more, on a grid that no product of weights and pixels meets.

    Their signs alternate, so that of a blank image some units are alive and some are dead.
    """

    def drawn(draw: Any) -> Any:
        signs = (-1.0) ** np.arange(math.prod(shape)).reshape(shape)
        return signs * (np.abs(draw.away(0.0, *shape)) + 2.0**-20)

    return drawn


def _scored(reads: str, writes: str = "loss") -> Iterator[Stage]:
    """Mean cross-entropy of the logits."""
    yield Stage(
        name="cross_entropy",
        op=loss.softmax_cross_entropy,
        reads=(reads, "labels"),
        writes="losses",
    )
    yield Stage(name="mean", op=reduction.mean, reads=("losses",), writes=writes)


def _dense(name: str, x: str, y: str) -> Iterator[Stage]:
    """A product with the weight, transposed, and the bias: the two steps that ggml takes."""
    yield Stage(
        name=f"{name}.mul_mat", op=linear.matmul, reads=(x, f"{name}.weight"), writes=f"{name}.wx"
    )
    yield Stage(
        name=f"{name}.add", op=elementwise.add, reads=(f"{name}.wx", f"{name}.bias"), writes=y
    )


def build_fc(*, h=4, w=4, hidden=5, classes=3, n=3, border=0):
    pixels = h * w

    def rows(draw: Any) -> Any:
        return images(n, h, w, border=border)(draw).reshape(n, pixels)

    return Program(
        params={
            "fc1.weight": loud(pixels, hidden, pixels),
            "fc1.bias": bias(hidden),
            "fc2.weight": _quiet(hidden, classes),
            "fc2.bias": bias(classes),
        },
        inputs={"images": rows, "labels": ids(classes, n)},
        stages=(
            *_dense("fc1", "images", "fc1"),
            Stage(name="relu", op=activation.relu, reads=("fc1",), writes="hidden"),
            *_dense("fc2", "hidden", "logits"),
            *_scored("logits"),
        ),
        loss="loss",
    )


def _quiet(fan_in: int, out: int) -> Drawn:
    """Weights that turn values of about `LOUD` into logits of about 1."""
    scale = 2.0 ** -round(math.log2(LOUD * math.sqrt(fan_in)))
    return lambda draw: draw.normal(out, fan_in, scale=scale)


MNIST_FC = ModelSpec(
    name="mnist_fc",
    build=build_fc,
    says="MNIST by a fully connected network: dense, ReLU, dense, cross-entropy",
    source="ggml's MNIST example, mnist-fc (784, 500, 10), named in its pull request 921",
    sizes=(
        Size(
            name="tiny",
            hunts="a ReLU that lets dead units' gradients pass, a bias summed over one image",
        ),
        Size(
            name="uneven",
            attrs={"h": 3, "w": 5, "hidden": 7, "classes": 2, "n": 4},
            hunts="weights transposed, classes taken for images",
        ),
        Size(
            name="blank",
            attrs={"h": 5, "w": 6, "hidden": 7, "border": 1},
            hunts="pixels of exactly zero, whose weights have no gradient; a blank image, which "
            "still moves the biases",
        ),
        Size(
            name="large",
            attrs={"h": 28, "w": 28, "hidden": 500, "classes": 10, "n": 2, "border": 4},
            hunts="what only the real size shows: sums of 784, cut short or kept too narrow",
        ),
    ),
)


def build_cnn(*, h=8, w=8, c1=2, c2=3, classes=3, n=2, border=0):
    pooled = (h // 4) * (w // 4) * c2
    return Program(
        params={
            "conv1.kernel": kernel(_loudness(9), c1, 1, 3, 3),
            "conv1.bias": bias(c1, 1, 1),
            "conv2.kernel": kernel(2.0 ** -round(math.log2(9 * c1) / 2), c2, c1, 3, 3),
            "conv2.bias": bias(c2, 1, 1),
            "dense.weight": _quiet(pooled, classes),
            "dense.bias": bias(classes),
        },
        inputs={"images": images(n, 1, h, w, border=border), "labels": ids(classes, n)},
        stages=(
            *_convolved("conv1", "images", "conv2_in"),
            *_convolved("conv2", "conv2_in", "pooled"),
            Stage(
                name="permute",  # channels last, as the example flattens them
                op=shape.permute,
                reads=("pooled",),
                writes="channels_last",
                attrs={"axes": (0, 2, 3, 1)},
            ),
            Stage(
                name="flatten",
                op=shape.reshape,
                reads=("channels_last",),
                writes="dense_in",
                attrs={"shape": (pooled,)},
            ),
            *_dense("dense", "dense_in", "logits"),
            *_scored("logits"),
        ),
        loss="loss",
    )


def _convolved(name: str, x: str, y: str) -> Iterator[Stage]:
    """A convolution that keeps the size, its bias, ReLU, and the largest of each 2 × 2."""
    yield Stage(
        name=f"{name}.conv_2d",
        op=convolution.conv_2d,
        reads=(x, f"{name}.kernel"),
        writes=f"{name}.wx",
        attrs={"padding": (1, 1)},
    )
    yield Stage(
        name=f"{name}.add", op=elementwise.add, reads=(f"{name}.wx", f"{name}.bias"), writes=name
    )
    yield Stage(name=f"{name}.relu", op=activation.relu, reads=(name,), writes=f"{name}.out")
    yield Stage(
        name=f"{name}.pool",
        op=convolution.max_pool_2d,
        reads=(f"{name}.out",),
        writes=y,
        attrs={"kernel": (2, 2), "stride": (2, 2)},
    )


MNIST_CNN = ModelSpec(
    name="mnist_cnn",
    build=build_cnn,
    says="MNIST by a convolutional network: twice a 3 x 3 convolution, ReLU and max-pool, then a "
    "dense layer and cross-entropy. Dead units tie in pooling windows",
    source="ggml's MNIST example, mnist-cnn, named in its pull request 921",
    sizes=(
        Size(
            name="tiny",
            at_kink=True,
            hunts="a pool that gives every maximum's place the gradient, a kernel turned round",
        ),
        Size(
            name="uneven",
            attrs={"h": 7, "w": 10, "c1": 3, "c2": 2, "classes": 5, "n": 3},
            at_kink=True,
            hunts="rows taken for columns, channels for pixels; a last row that no window covers",
        ),
        Size(
            name="blank",
            attrs={"h": 8, "w": 12, "border": 3},
            at_kink=True,
            hunts="blank pixels, whose windows tie above zero: equal patches, one of which must "
            "get all that the window gets",
        ),
        Size(
            name="large",
            attrs={"h": 28, "w": 28, "c1": 8, "c2": 16, "classes": 10, "border": 4},
            at_kink=True,
            hunts="what only the real size shows: sums over 784 places, cut short",
        ),
    ),
)
