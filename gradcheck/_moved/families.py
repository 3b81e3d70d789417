"""The former name of `gradcheck.spec.lazy_specs`, for suites on file."""

import warnings

from gradcheck.spec.lazy_specs import *  # noqa: F403

warnings.warn(
    "gradcheck.families is gradcheck.spec.lazy_specs now: import it from there",
    DeprecationWarning,
    stacklevel=2,
)
