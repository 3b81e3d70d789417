"""The former name of `gradcheck.numerics.arithmetic`, for suites on file."""

import warnings

from gradcheck.numerics.arithmetic import *  # noqa: F403

warnings.warn(
    "gradcheck.arithmetic is gradcheck.numerics.arithmetic now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
