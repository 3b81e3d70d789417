"""The MNIST networks in PyTorch: its own layers where their tensors have the suite's shapes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class MnistFc(nn.Module):
    def __init__(self, *, h, w, hidden, classes, **_):
        super().__init__()
        self.fc1 = nn.Linear(h * w, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, images, labels):
        return F.cross_entropy(self.fc2(F.relu(self.fc1(images))), labels)


class Convolution(nn.Module):
    """A bias of shape [c, 1, 1], as ggml adds it."""

    def __init__(self, before, after):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(after, before, 3, 3))
        self.bias = nn.Parameter(torch.empty(after, 1, 1))

    def forward(self, x):
        y = F.conv2d(x, self.kernel, self.bias.flatten(), padding="same")
        return F.max_pool2d(F.relu(y), 2)


class MnistCnn(nn.Module):
    def __init__(self, *, h, w, c1, c2, classes, **_):
        super().__init__()
        self.conv1, self.conv2 = Convolution(1, c1), Convolution(c1, c2)
        self.dense = nn.Linear((h // 4) * (w // 4) * c2, classes)

    def forward(self, images, labels):
        y = self.conv2(self.conv1(images))
        return F.cross_entropy(self.dense(y.movedim(1, -1).flatten(1)), labels)
