"""The documentation site, built once for all tests, and the modules that make its pages."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
NEEDED = ("mkdocs", "material", "mkdocstrings_handlers")
SECONDS = 300


def _build(into: Path) -> str:
    """Build the site strictly; what was said, where that failed."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(into / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr or "it failed silently"


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the built site; workers of one session share it."""
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"no {lacking[0]}: pip install -e '.[docs]'")
    if not (ROOT / "mkdocs.yml").exists():
        pytest.skip("not in a source tree")
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    into, said = base / "docs", base / "docs.said"
    try:
        into.mkdir()
    except FileExistsError:  # another worker is at it
        end = time.monotonic() + SECONDS
        while not said.exists() and time.monotonic() < end:
            time.sleep(0.2)
    else:
        aside = base / "docs.aside"
        aside.write_text(_build(into), encoding="utf-8")
        aside.rename(said)
    wrong = said.read_text(encoding="utf-8")
    assert not wrong, wrong
    return into / "site"
