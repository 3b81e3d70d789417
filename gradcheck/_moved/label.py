"""The former name of `gradcheck.spec.label`, for suites on file."""

import warnings

from gradcheck.spec.label import *  # noqa: F403

warnings.warn(
    "gradcheck.label is gradcheck.spec.label now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
