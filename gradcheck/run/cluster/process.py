"""The process that judges on a worker: it loads what it needs once, then does as it is told.

It is started by `cluster.dask_worker`, and ends with what started it: whether that closes the
line, is killed, or forgets to ask for more. What is printed here goes to the worker's log.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import GradcheckError
from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.frames import ParentChannel
from gradcheck.run.cluster.identity import difference, identity
from gradcheck.system.user_modules import look_here

WAIT: Final = 60.0
"""Seconds in which its first task must come: other workers may still be loading."""
IDLE: Final = 10.0
"""Seconds without another task after which it goes: its client may have been killed."""
GRACE: Final = 2.0
"""Seconds in which a task may end itself once nobody waits for it."""


class _Task:
    """What judges, whether it is at work, and whether it ever was."""

    function: Callable[[Any], Any]
    running = False
    served = False


def main(words: Sequence[str]) -> None:
    """Serve whoever started this at the descriptors that `words` end with."""
    requests, answers = int(words[-2]), int(words[-1])
    mine = os.dup(requests)
    line = ParentChannel(requests, answers)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked hears Ctrl-C, and ends this
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_watch, args=(mine,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while select.select([mine], [], [], IDLE if _Task.served else WAIT)[0]:
            _serve(line)


def _serve(line: ParentChannel) -> None:
    """Answer one request; where there is none any more, the process ends."""
    request = frames.read(line.exactly)
    _Task.running = True
    try:
        said, block = _answer(request.header, request.blocks)
    except Exception:  # noqa: BLE001  a defect of ours: the client raises it again
        said, block = {"kind": "raised", "text": traceback.format_exc()}, b""
    finally:
        _Task.running = False
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # whatever the code has put in their place
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
    if other:  # before the plan is read: it may mean something else there
        return {"kind": "unfit", "text": other}, b""
    _Task.function, setup, arguments = pickle.loads(blocks[0])
    try:
        setup(*arguments)
    except GradcheckError as error:
        return {"kind": "unfit", "text": str(error)}, b""
    return {"kind": "ready"}, b""


def _settle(asked: Mapping[str, Any]) -> None:
    """Be where the client is, as far as there is such a place here."""
    if Path(asked["folder"]).is_dir():
        os.chdir(asked["folder"])
    sys.argv[:] = asked["argv"]
    sys.path[:0] = [p for p in asked["path"] if p not in sys.path and Path(p).is_dir()]
    look_here()


def _stop(*_: object) -> None:
    if _Task.running:
        raise KeyboardInterrupt  # ends the task, and with it what the task has started
    os._exit(0)


def _watch(descriptor: int) -> None:
    """End this process when whoever started it is gone, whatever it is doing."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(0)
