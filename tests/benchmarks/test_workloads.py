import numpy as np
import pytest

from benchmarks.formulas import GPT_SHAPES, NEXT, TARGETS, TOKENS, H, T
from benchmarks.workloads import HARD, WORKLOADS, Workload, gradients, loss
from gradcheck import check_model

BOTH = {**WORKLOADS, **HARD}


def test_there_are_eight_and_the_gpt_has_its_size():
    assert len(WORKLOADS) == 8
    assert sum(int(np.prod(shape)) for shape in GPT_SHAPES.values()) == 30_080


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("name", BOTH)
def test_a_vjp_is_the_forwards_slope_and_a_wrong_one_is_not(name):
    workload = BOTH[name]
    primals = workload.primals(3)
    ct = np.random.default_rng(4).standard_normal(workload.forward(*primals).shape)
    params = {f"p{i}": p for i, p in enumerate(primals)}
    right = dict(zip(params, gradients(workload, ct, primals), strict=True))
    assert [g.shape for g in right.values()] == [p.shape for p in primals]

    def value():
        return loss(workload, ct, *primals)

    assert check_model(value, params, right)
    wrong = {**right, "p0": right["p0"] * 1.01}
    assert not check_model(value, params, wrong, locate=False)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", WORKLOADS)
def test_an_axis_in_front_of_a_primal_is_copies(name):
    workload = WORKLOADS[name]
    primals = workload.primals(5)
    for i, primal in enumerate(primals):
        if name in ("rms_norm", "layer_norm") and i:
            continue  # a vector beside a matrix: NumPy has to be told which axis is which
        moved = [*primals]
        moved[i] = np.stack([primal, 1.5 * primal])
        both = workload.forward(*moved)
        moved[i] = 1.5 * primal
        assert both.shape[0] == 2
        np.testing.assert_allclose(both[1], workload.forward(*moved), rtol=1e-13)


def torch_forward(workload: Workload):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    eps = workload.attrs.get("eps", 1e-5)

    def attention(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def gpt(*params):
        p = dict(zip(GPT_SHAPES, params, strict=True))
        x = p["wte"][torch.tensor(TOKENS)] + p["wpe"]

        def norm(x, name, k):
            return functional.layer_norm(x, (32,), p[name + "_w" + k], p[name + "_b" + k])

        def heads(x):
            return x.reshape(T, 4, 8).transpose(0, 1)

        for k in (".0", ".1"):
            qkv = norm(x, "ln1", k) @ p["qkv_w" + k] + p["qkv_b" + k]
            a = attention(*map(heads, qkv.chunk(3, -1)))
            x = x + a.transpose(0, 1).reshape(T, 32) @ p["out_w" + k] + p["out_b" + k]
            u = norm(x, "ln2", k) @ p["up_w" + k] + p["up_b" + k]
            h = functional.gelu(u, approximate="tanh")
            x = x + h @ p["down_w" + k] + p["down_b" + k]
        return functional.cross_entropy(norm(x, "ln", "") @ p["head"], torch.tensor(NEXT))

    return {
        "rms_norm": lambda x, w: functional.rms_norm(x, (64,), w, eps),
        "softmax": lambda x: torch.softmax(x, -1),
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "matmul": torch.matmul,
        "layer_norm": lambda x, w, b: functional.layer_norm(x, (64,), w, b),
        "attention": attention,
        "cross_entropy": lambda x: functional.cross_entropy(x, torch.tensor(TARGETS)),
        "relu_linear": lambda x, w: torch.relu(x @ w.T),
        "gpt": gpt,
    }[workload.operator]


@pytest.mark.frameworks
@pytest.mark.parametrize("name", BOTH)
def test_pytorchs_own_operators_and_autograd_agree(name):
    torch = pytest.importorskip("torch")
    workload = BOTH[name]
    primals = workload.primals(6)
    leaves = [torch.tensor(p, requires_grad=True) for p in primals]
    theirs = torch_forward(workload)(*leaves)
    ours = workload.forward(*primals)
    tolerance = 1e-9 if "1000" in name else 1e-12  # at 1000 three digits are gone on both sides
    np.testing.assert_allclose(ours, theirs.detach(), rtol=tolerance, atol=tolerance)
    ct = np.random.default_rng(7).standard_normal(ours.shape)
    theirs.backward(torch.tensor(ct))
    for mine, leaf in zip(gradients(workload, ct, primals), leaves, strict=True):
        size = np.abs(mine).max()
        np.testing.assert_allclose(mine, leaf.grad, rtol=tolerance, atol=tolerance * size)


def test_attention_sees_no_later_position():
    workload = WORKLOADS["attention"]
    q, k, v = workload.primals(8)
    before = workload.forward(q, k, v)
    v[:, -1] += 1.0
    after = workload.forward(q, k, v)
    assert np.array_equal(before[:, :-1], after[:, :-1])
    assert not np.array_equal(before[:, -1], after[:, -1])
    assert before.shape == (H, T, 16)
