"""The former name of `gradcheck.spec.rule`, for suites on file."""

import warnings

from gradcheck.spec.rule import *  # noqa: F403

warnings.warn(
    "gradcheck.rule is gradcheck.spec.rule now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
