"""What the soaks share: parts that many processes make, put together by whoever ends last."""

from __future__ import annotations

import json
import os

import pytest


@pytest.fixture
def gather(tmp_path_factory):
    """`gather(kind, part, parts, found)`: all of `parts`, once the last is there; else None."""
    base = tmp_path_factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def put(kind, part, parts, found):
        folder = common / kind
        folder.mkdir(exist_ok=True)
        whole = folder / f"{part}.json"
        whole.with_suffix(".part").write_text(json.dumps(found))
        whole.with_suffix(".part").rename(whole)
        files = [folder / f"{name}.json" for name in parts]
        if not all(file.exists() for file in files):
            return None
        return [json.loads(file.read_text()) for file in files]

    return put
