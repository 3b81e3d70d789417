"""The small models in PyTorch: a quadratic, a low-rank fit, least squares, a vector machine."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Quadratic(nn.Module):
    def __init__(self, *, n):
        super().__init__()
        self.x, self.a, self.b = (nn.Parameter(torch.empty(n)) for _ in range(3))

    def forward(self):
        return torch.addcmul(self.b, self.a, self.x**2).sum()


class TestOpt(nn.Module):
    def __init__(self, *, m, p, k):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.empty(m, k)), nn.Parameter(torch.empty(p, k))

    def forward(self, c):
        return torch.linalg.matrix_norm(c - self.b @ self.a.mT).square()


class LinearRegression(nn.Module):
    def __init__(self, *, d, o, **_):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.empty(o, d)), nn.Parameter(torch.empty(o))

    def forward(self, x, y):
        return F.mse_loss(F.linear(x, self.w, self.b), y)


class Svm(nn.Module):
    def __init__(self, *, d, **_):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.empty(1, d)), nn.Parameter(torch.empty(1))

    def forward(self, x, labels, **inputs):
        scores = F.linear(x, self.w, self.b)
        return F.relu(1 - labels * scores).mean() + inputs["lambda"] * self.w.square().sum()
