"""A Dask cluster to judge on: one that runs already, or one that is started here."""

from __future__ import annotations

import json
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import UsageError
from gradcheck.system.reading import contents

LARGEST: Final = 1 << 20
"""Bytes of a scheduler's file."""
REACHED: Final = 10
"""Seconds in which a scheduler must answer."""
JOINED: Final = 20
"""Seconds in which it must have a worker."""
ADDRESS: Final = re.compile(r"(?:(tcp|tls|ws|wss|ucx)://)?[^\s/]+:[0-9]+")
LOGGERS: Final = ("distributed", "tornado", "asyncio", "bokeh")
"""Whose words would stand between the lines of a report."""


def check_installed() -> None:
    """Refuse to begin what cannot be done.

    Raises:
        UsageError: the extra is not installed.
    """
    if find_spec("distributed") is None:
        raise UsageError(
            "--executor dask: Dask is not installed; run: pip install 'gradcheck[dask]'"
        )


def address_of(scheduler: str) -> str:
    """Where a scheduler is: at an address, or where the file says that it has written.

    >>> address_of("head:8786"), address_of("tls://10.0.0.1:8786")
    ('tcp://head:8786', 'tls://10.0.0.1:8786')

    Raises:
        UsageError: neither is one.
    """
    flag = f"--scheduler {scheduler}"
    if scheduler.endswith(".json"):
        try:
            scheduler = str(json.loads(contents(Path(scheduler), LARGEST))["address"])
        except OSError as error:
            raise UsageError(f"{flag}: {error.strerror}; is the scheduler running?") from None
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{flag}: not what `dask scheduler --scheduler-file` writes") from None
    found = ADDRESS.fullmatch(scheduler)
    if found is None:
        raise UsageError(f"{flag}: no address; write tcp://HOST:PORT, as `dask scheduler` prints")
    return scheduler if found[1] else f"tcp://{scheduler}"


@contextmanager
def connected(scheduler: str, jobs: int) -> Iterator[Any]:
    """A client of the cluster at an address, or, without one, of a new one with `jobs` workers.

    Raises:
        UsageError: Dask is not installed, nothing answers there, or there are no workers.
    """
    check_installed()
    address = address_of(scheduler) if scheduler else ""
    with ExitStack() as stack:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the versions that matter are compared elsewhere
            stack.enter_context(quiet())
            client = stack.enter_context(
                _reached(scheduler, address) if address else _embedded(jobs)
            )
        try:
            client.wait_for_workers(1, timeout=JOINED)
        except TimeoutError:
            raise UsageError(
                f"--scheduler {scheduler}: it has no workers; start some: dask worker {address}"
            ) from None
        yield client


def _reached(scheduler: str, address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout=REACHED, set_as_default=False)
    except (OSError, TypeError) as error:  # nobody is there; there are no keys for tls://
        raise UsageError(
            f"--scheduler {scheduler}: no Dask scheduler answers there ({error}); start one with "
            "`dask scheduler`, and give the address that it prints"
        ) from None


@contextmanager
def _embedded(jobs: int) -> Iterator[Any]:
    """A cluster within this process: its workers only wait, for processes that judge."""
    import dask
    from distributed import Client, LocalCluster

    with (
        tempfile.TemporaryDirectory(prefix="gradcheck-") as folder,
        dask.config.set({"temporary-directory": folder}),
        LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            memory_limit=None,
            silence_logs=False,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def quiet() -> Iterator[None]:
    """What Dask logs is not shown: what goes wrong is said in one line of ours."""

    def silent(_: logging.LogRecord) -> bool:
        return False

    import distributed  # noqa: F401  which makes its loggers

    known = logging.root.manager.loggerDict
    meant = [
        logger
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in LOGGERS
    ]
    silenced = [*meant, *(handler for logger in meant for handler in logger.handlers)]
    for each in silenced:
        each.addFilter(silent)
    try:
        yield
    finally:
        for each in silenced:
            each.removeFilter(silent)
