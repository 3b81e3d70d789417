import numpy as np

from gradcheck import check

x = np.random.default_rng(0).normal(size=(4, 3))
print(check(np.tanh, lambda ct, x: ct * (1 - np.tanh(x)), x))
