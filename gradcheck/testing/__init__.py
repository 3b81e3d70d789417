"""Gradients in tests: decorators and cases of test files, and the items of the pytest plugin.

In: a pytest session and its test files. Out: items, failures, a summary and reports.
"""

from __future__ import annotations

from typing import Final

MARKER: Final = "gradcheck"
"""The mark of all items: `-m gradcheck`."""
CARRIED: Final = "gradcheck"
"""The attribute of a report that carries results, as text."""
BASELINE: Final = "gradcheck::baseline"
"""The item that checks names and dates of the baseline."""
WORKER: Final = "workerinput"
"""The attribute of the configuration of an xdist worker."""
