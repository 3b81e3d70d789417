"""The former name of `gradcheck.spec.fault`, for suites on file."""

import warnings

from gradcheck.spec.fault import *  # noqa: F403

warnings.warn(
    "gradcheck.power.fault is gradcheck.spec.fault now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
