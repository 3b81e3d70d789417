"""What a table was measured on, in one line."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path


def processor() -> str:
    """The model of the processor."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return " ".join(found[1].split()) if found else platform.processor() or platform.machine()


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def memory() -> float:
    """Main memory, in GB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


def busy() -> float:
    """Processes that wanted a core over the last minute."""
    return os.getloadavg()[0]


def described(versions: Mapping[str, str] | None = None) -> str:
    """Processor, cores, memory, kernel, Python, and what else is asked for."""
    system = f"{platform.system()} {platform.release()}"
    parts = [f"{cores()} cores ({processor()})", f"{memory():.0f} GB", system,
             f"Python {platform.python_version()}"]  # fmt: skip
    parts += [f"{name} {version}" for name, version in (versions or {}).items()]
    return ", ".join(parts)
