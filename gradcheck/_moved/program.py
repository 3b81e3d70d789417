"""The former name of `gradcheck.spec.program`, for suites on file."""

import warnings

from gradcheck.spec.program import *  # noqa: F403

warnings.warn(
    "gradcheck.program is gradcheck.spec.program now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
