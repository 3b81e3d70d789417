"""`python -m gradcheck`."""

from __future__ import annotations

import sys

from gradcheck.cli import main

if __name__ == "__main__":
    sys.exit(main())
