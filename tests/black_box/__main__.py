"""Right and wrong VJPs at hard points, put to `gradcheck.check`; what it says of them.

`python -m tests.black_box --write reports/black-box.md` judges all pairs in both dtypes, by
projection and in full, and the wrong ones that are made of them. It exits 1 where a right one is a
FAIL, or where fewer than 99.5% of the wrong ones are rejected.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from .carried import carry_all
from .corpus import corpus
from .judged import Asked, judge_all
from .report import accepted, report


def main() -> int:
    """Judge, print, and write where asked."""
    parser = argparse.ArgumentParser(prog="tests.black_box", description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", action="append", default=[], help="only this kind")
    parser.add_argument(
        "--name", action="append", default=[], help="only what has this in its name"
    )
    parser.add_argument("--dtype", action="append", choices=("float64", "float32"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="in full alone; both without")
    parser.add_argument("--projection", action="store_true", help="by projection alone")
    parser.add_argument("--right", action="store_true", help="the right ones alone")
    parser.add_argument("--wrong", action="store_true", help="the wrong ones alone")
    parser.add_argument("--places", type=int, default=20, help="single elements 1%% off, per pair")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of one check")
    parser.add_argument("--verify", action="store_true", help="hold the pairs against 60 digits")
    parser.add_argument("--carried", action="store_true", help="what 50 digits can carry")
    parser.add_argument("--scales", action="store_true", help="no blind PASS from 1e-300 to 1e300")
    parser.add_argument("--large", action="store_true", help="a million elements, right and wrong")
    parser.add_argument("--write", type=Path, help="where the report goes")
    parser.add_argument("--log", type=Path, help="what was judged; a run that was cut goes on")
    parser.add_argument("-j", dest="jobs", type=int, default=1)
    given = parser.parse_args()
    if given.verify:
        from .verify import verify_all

        return verify_all(given.kind, given.name)
    if given.carried:
        wanted = Asked(kinds=tuple(given.kind), names=tuple(given.name)).wants
        names = [name for name, pair in corpus().items() if wanted(pair)]
        sys.stdout.write(carry_all(names, given.jobs))
        return 0
    if given.scales:
        from .scales import judge_scales

        dtypes = tuple(given.dtype or ("float64", "float32"))
        return judge_scales(given.name, dtypes, given.seeds, given.limit, given.jobs)
    if given.large:
        from .large import judge_large

        return judge_large(given.name, given.limit)
    modes = (True,) if given.full else (False,) if given.projection else (False, True)
    asked = Asked(
        kinds=tuple(given.kind),
        names=tuple(given.name),
        dtypes=tuple(given.dtype or ("float64", "float32")),
        seeds=given.seeds,
        modes=modes,
        right=not given.wrong,
        wrong=not given.right,
        places=given.places,
        limit=given.limit,
    )
    judged = judge_all(asked, given.jobs, given.log)
    text = report(judged)
    if given.write:
        text += carry_all({f"{j.kind}/{j.name}": None for j in judged}, given.jobs)
    sys.stdout.write(text)
    if given.write:
        given.write.write_text(text)
    return 0 if accepted(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
