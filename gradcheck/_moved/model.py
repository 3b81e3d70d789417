"""The former name of `gradcheck.spec.model`, for suites on file."""

import warnings

from gradcheck.spec.model import *  # noqa: F403

warnings.warn(
    "gradcheck.model is gradcheck.spec.model now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
