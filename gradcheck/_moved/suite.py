"""The former name of `gradcheck.spec.suite`, for suites on file."""

import warnings

from gradcheck.spec.suite import *  # noqa: F403

warnings.warn(
    "gradcheck.suite is gradcheck.spec.suite now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
