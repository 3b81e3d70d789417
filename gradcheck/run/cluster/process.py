"""The process that judges for a Dask worker: it loads a plan once, then judges what it is sent.

`cluster.dask_worker` starts it. It ends when the worker closes the channel, is killed, or sends no
more tasks. Its prints go to the worker's log. Before it loads a plan, it compares its versions with
those of the client: results of one report must not come from different code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import GradcheckError
from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.frames import ParentChannel
from gradcheck.system.posix import select
from gradcheck.system.user_modules import look_here

FIRST_TASK_SECONDS: Final = 60.0
"""Seconds in which its first task must come: other workers may still be loading."""
MAX_IDLE_SECONDS: Final = 10.0
"""Seconds without another task after which it ends: its client may have been killed."""
STOP_SECONDS: Final = 2.0
"""Seconds in which a task may end itself once nothing waits for it."""


class _Task:
    """The function that judges, whether it is running, and whether it ever was."""

    function: Callable[[Any], Any]
    running = False
    served = False


def main(words: Sequence[str]) -> None:
    """Serve the worker at the descriptors that `words` end with."""
    requests, answers = int(words[-2]), int(words[-1])
    mine = os.dup(requests)
    line = ParentChannel(requests, answers)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client handles Ctrl-C
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_watch, args=(mine,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while select.select(
            [mine], [], [], MAX_IDLE_SECONDS if _Task.served else FIRST_TASK_SECONDS
        )[0]:
            _serve(line)


def _serve(line: ParentChannel) -> None:
    """Answer one request; the process ends when the channel is closed."""
    request = frames.read(line.exactly)
    _Task.running = True
    try:
        said, block = _answer(request.header, request.blocks)
    except Exception:  # noqa: BLE001  the client raises it again
        said, block = {"kind": "raised", "text": traceback.format_exc()}, b""
    finally:
        _Task.running = False
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the code may have replaced them
            stream.flush()
    line.check()
    line.restore()
    for piece in frames.pieces(said, [block]):
        line.write(piece)


def _answer(asked: Mapping[str, Any], blocks: Sequence[memoryview]) -> tuple[dict[str, Any], bytes]:
    if asked["kind"] == "judge":
        _Task.served = True
        return {"kind": "judged"}, pickle.dumps(_Task.function(pickle.loads(blocks[0])))
    _settle(asked)
    other = difference(asked["identity"], identity(asked["suites"], asked["words"]))
    if other:  # before the plan is unpickled: it may mean something else here
        return {"kind": "unfit", "text": other}, b""
    _Task.function, setup, arguments = pickle.loads(blocks[0])
    try:
        setup(*arguments)
    except GradcheckError as error:
        return {"kind": "unfit", "text": str(error)}, b""
    return {"kind": "ready"}, b""


def _settle(asked: Mapping[str, Any]) -> None:
    """Use the folder and paths of the client, where they exist here."""
    if Path(asked["folder"]).is_dir():
        os.chdir(asked["folder"])
    sys.argv[:] = asked["argv"]
    sys.path[:0] = [p for p in asked["path"] if p not in sys.path and Path(p).is_dir()]
    look_here()


def _stop(*_: object) -> None:
    if _Task.running:
        raise KeyboardInterrupt  # ends the task and the processes that it started
    os._exit(0)


def _watch(descriptor: int) -> None:
    """End this process when the worker has ended, whatever it is doing."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os._exit(0)


# ── versions ─────────────────────────────────────────────────────────────────────────────────────

Identity = Mapping[str, str]
"""Versions on a machine, by the names that messages use."""
FRAMEWORKS: Final = {"torch": {"PyTorch": "torch"}, "jax": {"JAX": "jax", "jaxlib": "jaxlib"}}
"""By the `--impl` word of a framework, its packages, by the names that messages use."""


def identity(suites: Iterable[str], words: Collection[str] = ()) -> dict[str, str]:
    """The versions of this process.

    Args:
        suites: the references of the suites that are judged.
        words: the words of `--impl`; the versions of frameworks that they name count.
    """
    import numpy as np

    import gradcheck

    return {
        "Python": "{}.{}".format(*sys.version_info),
        "system": f"{platform.system()} {platform.machine()}",
        "NumPy": np.__version__,
        "gradcheck": f"{gradcheck.__version__} (its files: {_digest('gradcheck')})",
        **{
            name: _installed(package)
            for word, packages in FRAMEWORKS.items()
            if word in words
            for name, package in packages.items()
        },
        **{f"suite {ref}": f"of files {_digest(ref.partition(':')[0])}" for ref in suites},
    }


def difference(here: Identity, there: Identity) -> str:
    """The versions of another machine that differ; empty for none.

    >>> difference({"NumPy": "2.0"}, {"NumPy": "2.1"})
    'NumPy 2.1, not 2.0 as here'
    """
    found = [
        f"{name} {there.get(name, 'missing')}, not {said} as here"
        for name, said in here.items()
        if there.get(name) != said
    ]
    return "; ".join(found)


def _installed(package: str) -> str:
    """The version of a package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _digest(module: str) -> str:
    """Eight characters that change with the code of a module's package."""
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return "missing"
    found = hashlib.blake2b(digest_size=4)
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if folders:
        files = [(folder, path) for folder in folders for path in folder.rglob("*.py")]
    else:
        files = [(path.parent, path) for path in [Path(spec.origin or "")] if path.is_file()]
    for name, path in sorted((str(path.relative_to(root)), path) for root, path in files):
        found.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()
