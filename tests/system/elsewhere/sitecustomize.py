"""Python on Windows or macOS, as far as Linux can stand in for it.

With this folder in PYTHONPATH, `ELSEWHERE` (win32 or darwin) names the system whose missing modules
and functions are removed from every process before gradcheck is imported. The standard library and
NumPy, which choose their own implementation by system, are imported first. `os.name` stays: pathlib
would make paths of Windows, which Linux cannot open.
"""

# ruff: noqa: F401
import asyncio
import concurrent.futures
import ctypes.util
import errno
import http.client
import importlib.metadata
import logging.handlers
import mmap
import multiprocessing.connection
import multiprocessing.shared_memory
import os
import pathlib
import pdb
import platform
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid

import numpy

WINDOWS = {
    "fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline", "curses",
}  # fmt: skip
"""Modules that Windows lacks."""
POSIX = {
    os: (
        "fork", "forkpty", "sched_", "posix_", "pidfd_", "killpg", "getsid", "setsid", "getpg",
        "setpg", "getuid", "geteuid", "getgid", "getegid", "setuid", "setgid", "uname", "waitid",
        "wait3", "wait4", "WNOHANG", "WEXITED", "WNOWAIT", "P_", "readv", "writev", "pread",
        "pwrite", "set_blocking", "mkfifo", "mknod", "chown", "fchmod", "fchown", "nice", "sysconf",
        "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_DIRECTORY", "O_NOFOLLOW", "RTLD_", "getloadavg",
        "ctermid", "openpty", "ttyname", "sendfile", "eventfd", "memfd_", "splice", "confstr",
    ),
    signal: (
        "SIGKILL", "SIGPIPE", "SIGXCPU", "SIGXFSZ", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGHUP",
        "SIGQUIT", "SIGUSR", "SIGCHLD", "SIGBUS", "SIGTRAP", "SIGSYS", "SIGCONT", "SIGSTOP",
        "SIGTSTP", "SIGWINCH", "pthread_", "setitimer", "getitimer", "ITIMER_", "alarm", "pause",
        "sig", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK",
    ),
    select: ("poll", "epoll"),
    socket: ("AF_UNIX", "send_fds", "recv_fds"),
    mmap: ("MAP_", "PROT_", "MADV_"),
}  # fmt: skip
"""Beginnings of names that Windows lacks."""
LINUX = {
    os: ("sched_", "pidfd_", "waitid", "memfd_", "eventfd", "splice", "posix_fadvise"),
    select: ("epoll",),
    mmap: ("MAP_POPULATE",),
}
"""Beginnings of names that macOS lacks; `os.waitid` came with Python 3.13."""
KEPT = {"signal", "sigint"}


def without(names):
    for module, starts in names.items():
        for name in [name for name in dir(module) if name.startswith(starts)]:
            if name not in KEPT:
                delattr(module, name)


def hidden(*roots):
    """Let paths below `roots` be missing."""

    def refuse(event, arguments):
        path = arguments[0] if event in ("open", "os.listdir", "os.scandir") else None
        if isinstance(path, str) and path.startswith(roots) and path != os.devnull:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    sys.addaudithook(refuse)
    for look in (os.stat, os.lstat):

        def seen(path, *args, look=look, **kwargs):
            refuse("open", (path if isinstance(path, int) else os.fspath(path),))
            return look(path, *args, **kwargs)

        setattr(os, look.__name__, seen)


class Library(ctypes.CDLL):
    """A library as `ctypes` of the other system opens it."""

    def __init__(self, name, *args, **kwargs):
        if name is None and sys.platform == "win32":
            raise TypeError("argument of type 'NoneType' is not iterable")
        super().__init__(name, *args, **kwargs)

    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)


class Popen(subprocess.Popen):
    """Starts a process as the other system does."""

    def __init__(self, *args, **kwargs):
        for word in ("pass_fds", "preexec_fn"):
            if kwargs.get(word):
                raise ValueError(f"{word} not supported on Windows.")
        super().__init__(*args, **kwargs)


system = os.environ["ELSEWHERE"]
if system == "win32":
    without(POSIX)
    for name in WINDOWS:
        sys.modules[name] = None
    hidden("/proc", "/dev")
    subprocess.Popen = Popen
    platform.uname()
    platform.system = lambda: "Windows"
elif system == "darwin":
    without(LINUX)
    hidden("/proc")
    platform.system = lambda: "Darwin"
ctypes.CDLL = Library
sys.platform = system
