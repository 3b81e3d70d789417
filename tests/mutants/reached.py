"""A plugin of pytest: the tests that stand in a file alone, in that order; or who runs which line.

`MUTANTS_ONLY` names the file, one test a line. `MUTANTS_LINES` names the file that the lines are
written to: for each test its seconds of the processor, for each line of the engine its tests.
"""

import json
import os
from pathlib import Path

import coverage
import pytest

ONLY, LINES = "MUTANTS_ONLY", "MUTANTS_LINES"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if ONLY in os.environ:
        order = Path(os.environ[ONLY]).read_text().splitlines()
        place = {name: i for i, name in enumerate(order)}
        items[:] = sorted(
            (item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid]
        )


class Lines:
    """Notes the lines that each test runs."""

    def __init__(self, path: Path) -> None:
        self.path, self.seconds = path, {}
        self.coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[str(Path.cwd() / "gradcheck" / "*")]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if not self.seconds:
            self.coverage.start()
        self.coverage.switch_context(item.nodeid)
        began = sum(os.times()[:4])
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = sum(os.times()[:4]) - began

    def pytest_sessionfinish(self, session):
        self.coverage.stop()
        data, root = self.coverage.get_data(), Path.cwd()
        place = {name: i for i, name in enumerate(self.seconds)}
        lines = {
            str(Path(file).relative_to(root)): {
                line: [place[test] for test in tests if test]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        self.path.write_text(json.dumps({"seconds": self.seconds, "lines": lines}))


def pytest_configure(config):
    if LINES in os.environ:
        config.pluginmanager.register(Lines(Path(os.environ[LINES])))
