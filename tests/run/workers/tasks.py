"""What worker processes of tests do; it imports next to nothing, for every one of them loads it."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

STATE = []


def begin(*words):
    STATE[:] = words


def told(task):
    return (task, *STATE)


def born(task):
    return os.getpid()


def slow_first(task):
    """Of two paths, the first is done when the second has been."""
    if task.endswith("a"):
        while not Path(f"{task[:-1]}f").exists():
            time.sleep(0.01)
    elif task.endswith("f"):
        Path(task).touch()
    return task


def dies(task):
    """Of `d`, always; of a file's name, once."""
    if task == "d":
        os._exit(3)
    if task.startswith("/") and not Path(task).exists():
        Path(task).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def sleeps(task):
    time.sleep(1000 if task == "s" else 0)
    return task


def stays_once(task):
    """Of a file's name: for ever where there is no such file, which is made."""
    if not Path(task).exists():
        Path(task).touch()
        time.sleep(1000)
    return task


def deaf(task):
    """What does not hear that it is to leave off."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return sleeps(task)


def fails(task):
    if task == "f":
        raise ValueError("the f")
    return task


def prints(task):
    sys.stdout.write("not for the report\n")
    sys.stdout.flush()
    os.write(1, b"nor this\n")
    sys.stderr.write("::error::no\n")
    return task


def large(task):
    return task * 3_000_000


def unsendable(task):
    return threading.Lock()


def unfit(*_):
    raise OSError("no such library")


def ends(*_):
    os._exit(7)


def threaded():
    """What a suite may do that does not survive a fork."""
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def alone(task):
    return len([*Path("/proc/self/task").iterdir()])


def said(task):
    sys.stderr.flush()
    return (sys.argv[1:], signal.getsignal(signal.SIGINT) == signal.SIG_IGN)
