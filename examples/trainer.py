"""The norms of a real Llama trainer, wrong in three ways that nobody had noticed.

`gradcheck run --model llama --impl examples.trainer:TRAINER` judges them where they stand in the
model. Every other stage is the suite's own.
"""

import numpy as np


class RmsNorm:
    """y = x / rms(x) · w, with the backward pass as the trainer has it."""

    @staticmethod
    def backward(ct, values, stage):
        x, w = (values[name] for name in stage.reads)
        if stage.name.endswith(".rms_ffn"):  # the layer's input; the norm saw x after attention
            x = values[stage.name.removesuffix("rms_ffn") + "x"]
        rms = np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-5))
        dot = (ct * w * x).mean(-1, keepdims=True) / rms**2  # rms**3 is right
        return ct * w / rms - x * dot, None  # and w has a gradient


TRAINER = {"llama": {"stages": {"*rms_*": RmsNorm}}}
