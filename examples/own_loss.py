"""A network of a million parameters with gradients by hand, one element of which is 10% off."""

import numpy as np

from gradcheck import check_model

rng = np.random.default_rng(1)
params = {
    "w1": rng.normal(size=(512, 1000)) / 32,
    "b1": rng.normal(size=1000) / 8,
    "w2": rng.normal(size=(1000, 512)) / 32,
}
x, y = rng.normal(size=(16, 512)), rng.normal(size=(16, 512))


def forward():
    h = np.tanh(x @ params["w1"] + params["b1"])
    return h, h @ params["w2"] - y


def loss():
    return (forward()[1] ** 2).mean()


def backward():
    h, e = forward()
    ct = 2 * e / e.size
    a = (ct @ params["w2"].T) * (1 - h * h)
    return {"w1": x.T @ a, "b1": a.sum(0), "w2": h.T @ ct}


if __name__ == "__main__":
    gradients = backward()
    gradients["w1"][123, 456] *= 1.1
    print(check_model(loss, params, gradients))
