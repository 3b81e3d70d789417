"""Planted faults of the MNIST networks."""

from __future__ import annotations

from gradcheck.power import mutate
from gradcheck.spec.fault import changed, fed, reading, scaled
from gradcheck_cases.faults.kit import (
    element,
    first_of,
    lost,
    missing,
    mutated,
    negated,
    planter,
    shifted,
)

_fc = planter("mnist_fc")
_cnn = planter("mnist_cnn")

FC = (
    _fc("gradient missing", "fc1.mul_mat", "dw of the first layer is not produced.", missing(1)),
    _fc("one element", "fc1.mul_mat", "One element of dw is off by 10%.", element(1, 21)),
    _fc("reduction", "fc1.add", "The bias's gradient is a mean over the images.",
        changed(1, lambda xp, g, x, b, **attrs: g / x.shape[0])),
    _fc("missing residual", "fc1.add", "The cotangent passes the bias only.", lost(0)),
    _fc("formula", "relu", "Dead units' gradients pass.", mutated("relu/unmasked")),
    _fc("stale activation", "relu", "The mask is that of the product before the bias.",
        reading({0: "fc1.wx"})),
    _fc("one element", "relu", "One element is off by 10%.", element(0, 4)),
    _fc("last layer only", "fc2.mul_mat", "The last layer's weights get twice their gradient.",
        scaled(1, 2.0)),
    _fc("sign", "fc2.mul_mat", "dx has the wrong sign.", negated(0)),
    _fc("last layer only", "fc2.add", "The last layer's bias is left out.", lost(1)),
    _fc("position offset", "cross_entropy", "Each image gets another one's gradient.",
        changed(0, shifted())),
    _fc("formula", "cross_entropy", "The target's 1 is not subtracted.",
        mutated("softmax_cross_entropy/no-target")),
    _fc("reduction", "mean", "The mean is taken for a sum.", mutated("mean/sum")),
)  # fmt: skip

CNN = (
    _cnn("layout", "conv1.conv_2d", "The kernel's gradient is turned round.",
         changed(1, lambda xp, g, *primals, **attrs: g[..., ::-1, ::-1])),
    _cnn("layout", "conv2.conv_2d", "The kernel is flipped for dx.",
         mutated("conv_2d/kernel-flipped")),
    _cnn("reduction", "conv1.add", "The bias's gradient is a mean over pixels.",
         changed(1, lambda xp, g, x, b, **attrs: g / (x.shape[-1] * x.shape[-2]))),
    _cnn("stale activation", "conv2.relu", "The mask is that of the product before the bias.",
         reading({0: "conv2.wx"})),
    _cnn("formula", "conv1.relu", "Dead units' gradients pass.", mutated("relu/unmasked")),
    _cnn("formula", "conv2.pool", "A window's gradient is dealt out to all its pixels.",
         mutated("max_pool_2d/averaged")),
    _cnn("position offset", "conv1.pool", "The gradient goes to the next pixel.",
         fed(shifted(-1))),
    _cnn("one element", "conv2.conv_2d", "One element of the kernel's is off by 10%.",
         element(1, 30)),
    _cnn("one element", "flatten", "One element is off by 10%.", element(0, 6)),
    _cnn("layout", "flatten", "Channels are taken for pixels.", changed(0, mutate.relaid)),
    _cnn("layout", "permute", "Rows of pixels are taken for columns.",
         changed(0, mutate.transposed)),
    _cnn("last layer only", "dense.add", "The last layer's bias gets no gradient.", missing(1)),
    _cnn("one element", "dense.mul_mat", "One element of dw is never written.", element(1, 3, 0.0)),
    _cnn("wrong scale", "cross_entropy", "The gradient is doubled.", scaled(0, 2.0)),
    _cnn("position offset", "conv2.conv_2d", "Columns of dx are written one too far.",
         changed(0, shifted(-1))),
    _cnn("one head only", "conv2.add", "Only the first channel's cotangent passes.",
         changed(0, first_of(-3))),
)  # fmt: skip

FAULTS = (*FC, *CNN)
