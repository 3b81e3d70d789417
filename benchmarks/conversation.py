"""A peer in its own process, asked line by line; whatever becomes of it is a sentence."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
ENVIRONMENT = {
    **dict.fromkeys(THREADS, "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "PYTHONUNBUFFERED": "1",
}
"""One thread for everybody."""


class LostPeer(Exception):  # noqa: N818 - what has become of it, not whose fault
    """The process crashed, hung, or says what is no answer; the text is for the table."""


class Conversation:
    """One process that answers a line of JSON with a line of JSON."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it; its standard error is kept for the moment it ends."""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
            env=dict(os.environ) | ENVIRONMENT, start_new_session=True,
        )  # fmt: skip
        self._rest = b""
        self.lost: str | None = None

    def ask(self, limit: float, **request: Any) -> dict[str, Any]:
        """What it answers within `limit` seconds.

        Raises:
            LostPeer: it does not, now or earlier; the process is ended.
        """
        if self.lost is not None:
            raise LostPeer(self.lost)
        try:
            return self._exchange(limit, request)
        except LostPeer as error:
            self.lost = str(error)
            self.close()
            raise

    def _exchange(self, limit: float, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise LostPeer(self._ending()) from None
        line = self._line(time.monotonic() + limit, limit)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise LostPeer(f"no answer but {line[:40].decode(errors='replace')!r}")
        return answer

    def _line(self, until: float, limit: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = until - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise LostPeer(f"over {limit:.0f} s")
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    raise LostPeer(self._ending())
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ending(self) -> str:
        """How the process ended, and the last thing it said."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "closed its output"
        how = f"ended with {code}" if code >= 0 else f"crashed: {signal.Signals(-code).name}"
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how} ({last[:80]})" if last else how

    def close(self) -> None:
        """End the process and whatever it started."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                with suppress(OSError):  # what was still to be written has no reader
                    stream.close()
        try:
            self._process.wait(timeout=0.0 if self.lost else 2.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._said.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def with_peer(key: str) -> Conversation:
    """A conversation with one of `benchmarks.peers`."""
    return Conversation([sys.executable, "-m", "benchmarks.peers.serve", key])
