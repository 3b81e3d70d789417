"""The former name of `gradcheck.results.finding`, for suites on file."""

import warnings

from gradcheck.results.finding import *  # noqa: F403

warnings.warn(
    "gradcheck.finding is gradcheck.results.finding now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
