"""The benchmarks are no part of the wheel: without the checkout there is nothing to test here."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("benchmarks") else ["test_*.py"]
