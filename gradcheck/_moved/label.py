"""The former name of `gradcheck.spec.defect`, for suites on file."""

import warnings

from gradcheck.spec.defect import *  # noqa: F403

warnings.warn(
    "gradcheck.label is gradcheck.spec.defect now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
