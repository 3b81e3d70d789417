"""Other cotangents, and attributes at another value: named with what was read."""

import numpy as np

from gradcheck.explain.engine import diagnose
from tests.explain.scenes import changed, named, only, probes, reading_cotangent, right, table


def read(op, edit):
    return reading_cotangent(op, lambda ct, *primals: edit(ct))


def filled(op, value):
    return read(op, lambda ct: np.full_like(ct, value(ct)))


def two_states(edit):
    return lambda ct, *primals, **attrs: right("lstm_cell", edit(*ct), *primals, **attrs)


def without_second_state_in_dx(ct, *primals, **attrs):
    found = list(right("lstm_cell", ct, *primals, **attrs))
    found[0] = right("lstm_cell", (ct[0], 0 * ct[1]), *primals, **attrs)[0]
    return tuple(found)


test_another_cotangent_is_named = table(
    [
        ("cotangent", "tanh", "x", read("tanh", np.ones_like), "U",
         "ignores the cotangent: it is taken for all ones"),
        ("cotangent", "matmul", "w", filled("matmul", np.mean), "U",
         "takes the mean of the cotangent for all of it"),
        ("cotangent", "rms_norm", "x", filled("rms_norm", lambda c: c.flat[0]), "U",
         "takes the first element"),
        ("cotangent", "gelu", "x", filled("gelu", lambda c: c.flat[-1]), "U",
         "takes the last element"),
        ("cotangent", "silu", "x", filled("silu", np.sum), "U", "takes the sum of the cotangent"),
        ("cotangent", "layer_norm", "x", read("layer_norm", np.abs), "NL", "its sign is lost"),
        ("cotangent", "tanh", "x", read("tanh", lambda c: c * np.abs(c)), "NL",
         "multiplied by its magnitude"),
        ("cotangent", "matmul", "b", read("matmul", np.square), "NL", "it is multiplied in twice"),
        ("cotangent", "rms_norm", "w", read("rms_norm", np.sign), "NL",
         "the sign of the cotangent alone"),
        ("cotangent", "tanh", "x", read("tanh", lambda c: np.clip(c, -1, 1)), "NL", "to [-1, 1]"),
        ("cotangent", "tanh", "x", read("tanh", lambda c: np.clip(c, -0.5, 0.5)), "NL",
         "to [-0.5, 0.5]"),
        ("cotangent", "gelu", "x", read("gelu", lambda c: c / np.linalg.norm(c)), "NL",
         "by its norm"),
        ("cotangent", "tanh", "x", read("tanh", lambda c: np.maximum(c, 0)), "NL",
         "loses the negative part"),
        ("cotangent", "softmax", "x", read("softmax", lambda c: c[..., :1, :] + 0 * c), "U",
         "takes the first entry of the cotangent's axis -2 for all of them"),
        ("cotangent", "tanh", "x", read("tanh", lambda c: c.reshape(-1, c.shape[-1])[0] + 0 * c),
         "U", "takes the cotangent of the first row for all rows"),
        # of an operator that copies, ones are what its memory held
        ("cotangent", "flip", "x", read("flip", np.ones_like), "A", "it is never written"),
        ("cotangent", "lstm_cell", "w_ih", two_states(lambda h, c: (h, 0 * c)), "U",
         "dw_ih ignores the cotangent of output 2"),
        # where the other gradients have it, a path is missing, and not the cotangent
        ("cotangent", "lstm_cell", "x", without_second_state_in_dx, "T",
         "dx ignores the cotangent of output 2"),
        ("cotangent", "lstm_cell", "x", two_states(lambda h, c: (c, h)), "U",
         "dx exchanges the cotangents of outputs 1 and 2"),
        # of wide samples every row reads the first one's, of narrow ones the last one's
        ("cotangent", "softmax", "x", read("softmax", lambda c: 0 * c + (
            c[..., :1, :] if c.shape[-1] > 4 else c[..., -1:, :])), "", ""),
        ("replaced", "tanh", "x", reading_cotangent("tanh", lambda ct, x: x), "U",
         "dx reads x in place of the cotangent"),
        ("replaced", "tanh", "x", reading_cotangent("tanh", lambda ct, x: np.tanh(x)), "U",
         "reads the output in place of the cotangent"),
        ("replaced", "mul", "x", reading_cotangent("mul", lambda ct, x, y: 0 * ct + x * y), "U",
         "reads the output in place of"),
        ("replaced", "tanh", "x", reading_cotangent("tanh", lambda ct, x: np.tanh(ct)), "NL",
         "it passes through forward first"),
        ("replaced", "tanh", "x", lambda ct, x: np.tanh(ct), "NL",
         "dx is not linear in the cotangent: forward is applied to it"),
        ("replaced", "tanh", "x", lambda ct, x: np.cos(x), "U", "does not depend on the cotangent"),
    ],
    keep=12,
)  # fmt: skip


def test_a_gradient_kept_from_an_earlier_call_is_not_independent_of_the_cotangent():
    kept = {}

    def vjp(ct, x):
        return kept.setdefault(x.shape, right("tanh", ct, x)[0])

    assert not named("tanh", vjp, "x", only("replaced")).label


def taking(op, change):
    def vjp(ct, *primals, **attrs):
        found = right(op, ct, *primals, **{**attrs, **change(attrs)})
        return found[0] if len(found) == 1 else found

    return vjp


test_another_attribute_is_named = table(
    [
        ("attributes", "rms_norm", "x", taking("rms_norm", lambda a: {"eps": 1e-5}), "P",
         "takes eps = 1e-05, its default"),
        ("attributes", "rms_norm", "x",
         taking("rms_norm", lambda a: {"unit_offset": not a["unit_offset"]}), "P", "its opposite"),
        ("attributes", "leaky_relu", "x", taking("leaky_relu", lambda a: {"negative_slope": 0.01}),
         "P", "its default"),
        ("attributes", "softcap", "x", taking("softcap", lambda a: {"cap": 30.0}), "P",
         "cap = 30.0"),
        ("attributes", "diag_mask_zero", "x",
         taking("diag_mask_zero", lambda a: {"n_past": a["n_past"] + 1}), "I", "n_past + 1"),
        ("values", "rms_norm", "x", taking("rms_norm", lambda a: {"eps": 0.0}), "E", "eps = 0.0",
         {"sample": "eps-0.1"}),
        ("values", "elu", "x", taking("elu", lambda a: {"alpha": a["alpha"] ** 2}), "F",
         "alpha² for alpha"),
        ("values", "softplus", "x", taking("softplus", lambda a: {"beta": 1 / a["beta"]}), "F",
         "1/beta for beta"),
    ],
    keep=4,
)  # fmt: skip


def test_a_right_gradient_has_no_diagnosis():
    assert diagnose("x", probes("rms_norm", changed("rms_norm")), only("attributes")) is None
