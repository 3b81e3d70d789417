"""The former name of `gradcheck.spec.mutant`, for suites on file."""

import warnings

from gradcheck.spec.mutant import *  # noqa: F403

warnings.warn(
    "gradcheck.power.mutant is gradcheck.spec.mutant now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
