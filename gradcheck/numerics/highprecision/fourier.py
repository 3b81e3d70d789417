"""numpy.fft on object arrays of big numbers, by the defining sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradcheck.numerics.arrays import Array
from gradcheck.numerics.highprecision.numbers import Numbers

Function = Callable[..., Any]


class Fourier:
    """Discrete Fourier transforms in big numbers."""

    def __init__(self, work: Numbers) -> None:
        """Compute in the numbers of `work`."""
        self._work = work
        self._c = work.context

    def table(self) -> dict[Any, Function]:
        """Functions of numpy.fft and their implementations here."""
        f = np.fft
        return {
            f.fft: self.fft, f.ifft: self.ifft, f.rfft: self.rfft, f.irfft: self.irfft,
            f.hfft: self.hfft, f.ihfft: self.ihfft,
            f.fftn: self._several(self.fft, self.fft),
            f.ifftn: self._several(self.ifft, self.ifft),
            f.rfftn: self._several(self.rfft, self.fft),
            f.irfftn: self._several(self.irfft, self.ifft),
            f.fft2: self._several(self.fft, self.fft, (-2, -1)),
            f.ifft2: self._several(self.ifft, self.ifft, (-2, -1)),
            f.rfft2: self._several(self.rfft, self.fft, (-2, -1)),
            f.irfft2: self._several(self.irfft, self.ifft, (-2, -1)),
        }  # fmt: skip

    def _along(self, x: Any, n: int | None, axis: int, sign: int, norm: str | None) -> Array:
        x = np.moveaxis(self._work.lifted(x), axis, -1)
        n = x.shape[-1] if n is None else n
        x = self._resized(x, n)
        self._work.spend(x.size * n // 4)
        roots = [self._c.expjpi(self._c.mpf(sign * 2 * k) / n) for k in range(n)]
        turns = np.outer(np.arange(n), np.arange(n)) % n
        cosines = np.array([root.real for root in roots], dtype=object)[turns]
        sines = np.array([root.imag for root in roots], dtype=object)[turns]
        re, im = (np.atleast_2d(p) for p in (self._work.real_part(x), self._work.imag_part(x)))
        real = self._work.matmul(re, cosines) - self._work.matmul(im, sines)
        imag = self._work.matmul(re, sines) + self._work.matmul(im, cosines)
        out = np.frompyfunc(self._work.complex, 2, 1)(real, imag)
        scale = {None: sign > 0, "backward": sign > 0, "forward": sign < 0, "ortho": None}[norm]
        if scale is None:
            out = out / self._c.sqrt(n)
        elif scale:
            out = out / n
        return np.moveaxis(out.reshape(x.shape), -1, axis)

    def _resized(self, x: Array, n: int) -> Array:
        """The last axis cut, or continued by zeros, to length n."""
        missing = max(0, n - x.shape[-1])
        more = np.full((*x.shape[:-1], missing), self._c.zero, dtype=object)
        return np.concatenate([x[..., :n], more], axis=-1)

    def fft(self, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        return self._along(a, n, axis, -1, norm)

    def ifft(self, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        return self._along(a, n, axis, 1, norm)

    def rfft(self, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        full = self._along(a, n, axis, -1, norm)
        return np.take(full, range(full.shape[axis] // 2 + 1), axis=axis)

    def irfft(
        self, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None
    ) -> Any:
        half = np.moveaxis(self._work.lifted(a), axis, -1)
        n = 2 * (half.shape[-1] - 1) if n is None else n
        half = self._resized(half, n // 2 + 1)
        mirrored = half[..., 1 : (n + 1) // 2][..., ::-1]
        whole = np.concatenate([half, self._work.conjugate(mirrored)], axis=-1)
        # NumPy takes the first and, where n is even, the middle one as real.
        for k in {0, *([n // 2] if n % 2 == 0 else [])}:
            whole[..., k] = self._work.real_part(whole[..., k])
        out = self._along(whole, n, -1, 1, norm)
        return np.moveaxis(self._work.real_part(out), -1, axis)

    def hfft(self, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None) -> Any:
        conj = self._work.conjugate(self._work.lifted(a))
        return self.irfft(conj, n, axis, _OPPOSITE[norm])

    def ihfft(
        self, a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None
    ) -> Any:
        return self._work.conjugate(self.rfft(a, n, axis, _OPPOSITE[norm]))

    def _several(
        self, last: Function, others: Function, default: Sequence[int] | None = None
    ) -> Function:
        """A transform over several axes: `last` along the last of them, `others` along the rest.

        A real transform begins with the last axis, its inverse ends there.
        """

        def transform(
            a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None
        ) -> Any:
            a = self._work.lifted(a)
            if axes is None:
                axes = range(a.ndim) if s is None else range(a.ndim - len(s), a.ndim)
            lengths = [None] * len(axes) if s is None else s
            steps = [*zip([others] * (len(axes) - 1) + [last], lengths, axes, strict=True)]
            for one, n, axis in reversed(steps) if last == self.rfft else steps:
                a = one(a, n, axis, norm)
            return a

        return transform


_OPPOSITE = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
"""The norm under which a transform is scaled as its inverse is under another."""
