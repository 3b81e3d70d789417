"""The former name of `gradcheck.results.verdict`, for suites on file."""

import warnings

from gradcheck.results.verdict import *  # noqa: F403

warnings.warn(
    "gradcheck.verdict is gradcheck.results.verdict now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
