"""The words by which C code calls operators, tensors, attributes and sizes."""

from __future__ import annotations

from typing import Final


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


BACKWARD: Final = _set("backward bwd back bw grad grads gradient vjp backprop bprop")
FORWARD: Final = _set("forward fwd fw fprop")
NOISE: Final = _set(
    "f f16 f32 f64 fp16 bf16 fp32 fp64 float double float32 float64 half cpu kernel naive "
    "impl op ref inplace"
)
OPERATORS: Final = {
    "swish": "silu", "residual": "add", "embedding": "get_rows", "embed": "get_rows",
    "lookup": "get_rows", "linear": "matmul", "dense": "matmul", "fc": "matmul",
    "mse": "square_error", "bce": "binary_cross_entropy", "xent": "softmax_cross_entropy",
    "softmaxxent": "softmax_cross_entropy", "crossentropysoftmax": "softmax_cross_entropy",
    "kldiv": "kl_divergence", "maxpool": "max_pool_2d", "avgpool": "avg_pool_2d",
}  # fmt: skip
"""Other names of operators, without underscores."""
OUTPUTS: Final = _set("out output outputs y o z dst dest res result top loss losses out_data ret")
COTANGENTS: Final = _set("ct cotangent upstream delta g gy go dz")
PRIMALS: Final = {
    "x": "inp input in src a data h hidden act bottom inp1 x1",
    "w": "weight weights gamma kernel filter wt scale",
    "b": "bias biases beta",
    "y": "b other rhs target inp2 x2",
    "q": "query", "k": "key", "v": "value",
    "logits": "x inp input acts scores", "targets": "target labels label tgt ids y t",
    "tokens": "ids idx indices inp input", "rows": "ids idx index indices tokens inp",
    "index": "idx indices ids", "p": "probs prob pred", "gate": "h1 a", "up": "h3 b",
    "wte": "weight table emb", "mask": "keep",
}  # fmt: skip
"""Other names of primals."""
ATTRIBUTES: Final = {
    "eps": "epsilon", "negative_slope": "slope alpha leak", "heads": "nh n_head n_heads num_heads",
    "ignore_index": "ignore ignored", "smoothing": "label_smoothing", "groups": "n_groups g",
    "base": "theta freq_base", "offset": "pos start", "cap": "softcap limit", "p": "prob rate",
}  # fmt: skip
AXES: Final = {
    "o": "oc out_features out_dim n_out", "i": "c ic in_features in_dim n_in k",
    "v": "vocab vocab_size", "c": "channels embd n_embd d dim", "t": "seq seq_len seqlen n_tokens",
    "h": "nh heads n_heads num_heads", "d": "head_dim hs hd",
}  # fmt: skip
"""Other names of axes, by the letter that signatures have for them."""
_RSTD = "rstd inv_std invstd inv_rms rms_inv rrms scale"
_OF_SQUARES = "mean(x * x, -1)"
RESIDUALS: Final = {
    "rms_norm": {_RSTD: f"1 / sqrt({_OF_SQUARES} + eps)", "rms": f"sqrt({_OF_SQUARES} + eps)"},
    "layer_norm": {
        "mean mu": "mean(x, -1)",
        _RSTD: f"1 / sqrt({_OF_SQUARES} - mean(x, -1) ** 2 + eps)",
    },
}
"""What a forward usually saves per row, and how it follows from the primals."""
COUNTS: Final = _set("n size len length count numel total num n_elem ne0 elements")
ROWS: Final = _set("n m r b t bt nt rows n_rows nrows num_rows batch tokens seq outer")
COLUMNS: Final = _set(
    "d c v h k n cols ncols n_cols columns dim dims hidden channels features vocab width size "
    "inner hidden_size vocab_size"
)
