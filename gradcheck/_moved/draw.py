"""The former name of `gradcheck.numerics.draw`, for suites on file."""

import warnings

from gradcheck.numerics.draw import *  # noqa: F403

warnings.warn(
    "gradcheck.draw is gradcheck.numerics.draw now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
