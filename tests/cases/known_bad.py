"""The known-bad implementations of the catalogue, one operator at a time, with their classes."""

KNOWN_BAD = {
    "rms_norm/second-term-short": "T",
    "elu/x-above-zero": "D",
    "scale/mean": "R",
    "repeat/all-summed": "B",
    "softmax/one-row": "W",
    "div/operands-swapped": "G",
    "sub/operands-swapped": "G",
    "acc/untouched-not-copied": "A",
    "add/strides-ignored": "L",
    "leaky_relu/formula-0-at-0": "K",
    "relu/minus-seven": "F",
    "silu/minus-seven": "F",
    "softmax/times-minus-seven": "F",
    "get_rows/times-minus-seven": "F",
    "cross_entropy/minus-7": "F",
    "softmax_cross_entropy/minus-7": "F",
}
"""What the systems that the catalogue was taken from got wrong, one operator at a time."""
