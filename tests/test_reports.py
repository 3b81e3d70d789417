"""The committed reports are what a run says today, on any machine: verdicts, rows and counts.

`python tests/test_reports.py FRESH…` holds reports made just now (Markdown or HTML) against those
of the same name in `reports/`, and exits 1 where one says anything else. With `--write` it replaces
these, or adds them; one that says the same keeps its bytes, whatever machine made the other.
With `--part` the reports are of a part of what was committed (fewer samples, fewer dtypes, no
contract): each of their rows has to be there, with the same verdicts.
"""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REPORTS = ROOT / "reports"
DECADE = re.compile(r" \((?:< [0-9.]+|≥ 1)\)")
"""How near a pass came to its bound: libraries differ in the last digits."""
FAILED = re.compile(r"\*\*([A-Z]+)\*\*[^|\n]*")
"""A verdict, and the error behind it."""
MEASURED = re.compile(r"-?\d+\.\d+(e[-+]?\d+)?|-?\d+e[-+]?\d+|\b(nan|inf)\b")
"""A number that is no count."""
ROW = re.compile(r"<tr\b[^>]*>(.*?)(?=<tr\b|<tbody|</table)", re.DOTALL)
"""A row of a table in HTML."""
TAG = re.compile(r"<span>.*?</span>|<[^>]*>", re.DOTALL)
"""Markup, and the error behind a verdict."""
CONTRACT = "side conditions"
"""The row of what a backward owes besides its numbers."""
COUNTS = ("samples", "elements")
"""Heads of columns that hold no verdict."""
FRAMEWORKS = "── PyTorch and JAX"
"""What heads the last part of CI."""
PEERS = ("torch.md", "jax.md")
"""Reports of the suite's own cases in frameworks."""
LARGEST = 1_000_000
"""Bytes of a report that is committed."""
KEPT = ("suite ", "implementation", "dtypes ", "seed ")
"""What is to be the same of what was run; versions and the platform are not."""


def said(report: str) -> list[str]:
    """The lines of a report without what another machine may say otherwise; of HTML, its rows."""
    if report.lstrip().lower().startswith("<!doctype html"):
        return [
            " | ".join(TAG.sub("\0", row).replace("\0", " ").split()) for row in ROW.findall(report)
        ]
    return [line for line in map(_line, report.splitlines()) if line]


def _line(line: str) -> str:
    if line.startswith("gradcheck ") and " · " in line:
        return " · ".join(fact for fact in line.split(" · ") if fact.startswith(KEPT))
    return MEASURED.sub("#", FAILED.sub(r"**\1**", DECADE.sub("", line)))


def differences(committed: str, fresh: str) -> list[str]:
    """What a fresh report says otherwise: a line per line that is gone or new."""
    lines = difflib.unified_diff(said(committed), said(fresh), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def rows(report: str) -> dict[tuple[str, ...], dict[str, str]]:
    """The cells of a report in Markdown by operator, dialect and gradient, and by their heads."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    heads: list[str] = []
    name = ("", "")
    for line in report.splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        elif cells[0] == "operator":
            heads = cells[3:] if cells[2:3] == ["gradient"] else []
        elif heads and not cells[0].startswith("---"):
            name = (cells[0], cells[1]) if cells[0] else (name[0], cells[1] or name[1])
            found[*name, cells[2]] = dict(zip(heads, cells[3:], strict=True))
    return found


def cases_of(report: str) -> str:
    """Which cases a report is about: where they are the same, so are the counts."""
    return "".join(re.findall(r"\bcases [0-9a-f]{8}\b", report)[:1])


def part_differences(committed: str, fresh: str) -> list[str]:
    """What a report of a part says otherwise, with the rows that are gone or new.

    Operators' dialects may be missing where fewer samples were judged, and contracts where none was
    asked for; of those that are there, every row is.
    """
    known, now = rows(committed), rows(fresh)
    same = cases_of(committed) == cases_of(fresh)
    judged = {row[:2] for row in now}
    contracts = any(row[2] == CONTRACT for row in now)
    asked = [row for row in known if contracts or row[2] != CONTRACT]
    wanted = [row for row in asked if same or row[:2] in judged]
    found = [f"-{' '.join(row)}" for row in wanted if row not in now]
    found += [f"+{' '.join(row)}" for row in now if row not in known]
    for row, cells in now.items():
        for head, cell in cells.items() if row in known else ():
            both = [_cell(known[row].get(head, ""), head, same), _cell(cell, head, same)]
            if both[0] != both[1]:
                title = f"{' '.join(row)} {head}"
                found += [f"{sign}{title}: {text}" for sign, text in zip("-+", both, strict=True)]
    return found if now else ["-everything: there is no row"]


def _cell(cell: str, head: str, same: bool) -> str:
    """What is to be the same of a cell; of other cases, the verdict alone."""
    if head in COUNTS:
        return cell if same else ""
    text = _line(cell).strip("*")
    return text if same else text.partition(" ")[0].strip("*")


def main(words: list[str]) -> int:
    """Compare the reports that are named; returns the exit code."""
    write, part = "--write" in words, "--part" in words
    if write and part:
        sys.stderr.write("--part and --write: a part does not replace the whole\n")
        return 2
    stale = 0
    for fresh in (Path(word) for word in words if word not in ("--write", "--part")):
        committed = REPORTS / fresh.name
        for path in (fresh, *([] if write else [committed])):
            if not path.is_file():
                sys.stderr.write(f"{path}: there is no such report\n")
                return 2
        now = fresh.read_text(encoding="utf-8")
        before = committed.read_text(encoding="utf-8") if committed.is_file() else ""
        found = (part_differences if part else differences)(before, now)
        state = "another machine's digits" if before != now else "the same bytes"
        state = "as far as it was judged" if part else state
        sys.stdout.write(f"reports/{fresh.name}: {'STALE' if found else f'up to date, {state}'}\n")
        shown = found[:40] if before else []
        sys.stdout.writelines(f"  {line}\n" for line in shown)
        if len(found) > len(shown):
            sys.stdout.write(f"  … and {len(found) - len(shown)} more lines\n")
        if len(now.encode()) > LARGEST:
            sys.stderr.write(f"{fresh}: {len(now.encode()):,} bytes are too many to be committed\n")
            return 2
        if found and write:
            shutil.copyfile(fresh, committed)
            sys.stdout.write(f"  reports/{fresh.name} is written anew: look at it, and commit it\n")
        stale += bool(found)
    if stale and not write:
        sys.stdout.write("`tox -e cases` writes them anew\n")
    return int(stale > 0)


COMMITTED = sorted(
    path.name
    for path in REPORTS.glob("*.md")
    if path.read_text("utf-8").startswith("**gradcheck: ")
)
"""The reports of a run; others are about power."""


def text(name: str) -> str:
    return (REPORTS / name).read_text(encoding="utf-8")


def changed(name: str, pattern: str, replacement: str) -> list[str]:
    """What is noticed where the first match in a committed report is something else."""
    before = text(name)
    after, count = re.subn(pattern, replacement, before, count=1, flags=re.MULTILINE)
    assert count == 1
    assert after != before
    return differences(before, after)


def test_the_reports_of_runs_are_known() -> None:
    assert set(COMMITTED) >= {"builtin.md", "models.md", "rules.md", "low.md"}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", COMMITTED)
def test_every_change_is_noticed_but_of_the_machine(name: str) -> None:
    verdict = r"^(\|.*?\| )PASS( \(< [0-9.]+\))? \|"
    (gone, came) = changed(name, verdict, r"\1**FAIL** 1.2e-03 > 1.0e-08 |")
    assert (gone[0], came[0], "FAIL" in gone, "FAIL" in came) == ("-", "+", False, True)
    for pattern, replacement in (
        (verdict, r"\1UNSUPPORTED |"),
        (verdict, r"\1– |"),
        (r"\(([\d,]+) pass", r"(9\1 pass"),
        (r"cases [0-9a-f]{8}", "cases 01234567"),
        (r"seed 0", "seed 1"),
        (r"suite builtin", "suite other"),
    ):
        assert changed(name, pattern, replacement), replacement
    assert len(changed(name, r"^\|.*PASS.*\n", "")) == 1
    assert len(changed(name, r"^(\|.*PASS.*\n)", r"\1\1")) == 1
    (gone, came) = changed(name, r"^(\|.*PASS.* )([\d,]+) \|$", r"\g<1>7\2 |")
    assert gone[1:] != came[1:]
    before = text(name)
    after = re.sub(r"on Python .*", "on Python 3.14.0, NumPy 3.1.4, Linux aarch64", before)
    after = re.sub(r"PASS \(< [0-9.]+\)", "PASS (< 1)", after)
    assert after != before
    assert differences(before, after) == []


def test_measured_numbers_are_not_and_counts_are() -> None:
    row = "| `x` | **FAIL** 1.9e+00 > 1.1e-08 | 14 | 1,944 |"
    assert differences(row, row.replace("1.9e+00", "2.0e+00")) == []
    assert differences(row, row.replace("1,944", "1,943"))
    assert differences(row, row.replace("FAIL", "CRASH"))
    detail = "| `far` | 0.5000001 | 0.5 ± 1e-20 | 2.1e-07 relative | 3 of 24 |"
    assert differences(detail, detail.replace("0.5000001", "nan")) == []
    assert differences(detail, detail.replace("3 of", "4 of"))


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """A folder of committed reports with one in it, and one made just now."""
    for folder in ("reports", "fresh"):
        (tmp_path / folder).mkdir()
        shutil.copy(REPORTS / "rules.md", tmp_path / folder)
    monkeypatch.setattr(sys.modules[__name__], "REPORTS", tmp_path / "reports")
    return tmp_path / "reports" / "rules.md", tmp_path / "fresh" / "rules.md"


def test_the_same_report_is_up_to_date(reports, capsys):
    committed, fresh = reports
    before = committed.read_bytes()
    assert main([str(fresh)]) == 0
    assert "up to date, the same bytes" in capsys.readouterr().out
    fresh.write_text(fresh.read_text().replace("Linux", "Darwin"))
    assert main(["--write", str(fresh)]) == 0
    assert "another machine's digits" in capsys.readouterr().out
    assert committed.read_bytes() == before


def test_a_stale_report_is_told_line_by_line_and_written_anew_on_request(reports, capsys):
    committed, fresh = reports
    before = committed.read_bytes()
    fresh.write_text(fresh.read_text().replace("PASS", "FAIL", 1))
    assert main([str(fresh)]) == 1
    out = capsys.readouterr().out
    assert "reports/rules.md: STALE\n  -| " in out
    assert committed.read_bytes() == before
    assert main(["--write", str(fresh)]) == 1
    assert committed.read_bytes() == fresh.read_bytes()
    assert main([str(fresh)]) == 0


def test_a_report_that_there_is_not_is_no_success(reports, capsys):
    fresh = reports[1]
    assert main([str(fresh.with_name("other.md"))]) == 2
    fresh.unlink()
    assert main([str(fresh)]) == main(["--write", str(fresh)]) == 2
    assert capsys.readouterr().err.count("there is no such report") == 3


def test_a_report_that_is_new_is_written_and_one_that_is_too_large_is_not(reports, capsys):
    committed, fresh = reports
    committed.unlink()
    assert main([str(fresh)]) == 2
    assert not committed.exists()
    assert main(["--write", str(fresh)]) == 1
    assert committed.read_bytes() == fresh.read_bytes()
    fresh.write_text(f"{fresh.read_text()}\n{'x' * LARGEST}")
    assert main(["--write", str(fresh)]) == 2
    assert "bytes are too many" in capsys.readouterr().err
    assert len(committed.read_bytes()) < LARGEST


def test_rows_of_html_are_compared_without_what_is_measured(capsys):
    from gradcheck.cli.main import main as command

    select = ["--suite", "gradcheck_cases:SUITE", "--op", "silu", "--sample", "typical", "-q"]
    assert command(["run", *select, "--format", "html"]) == 0
    page = capsys.readouterr().out
    assert len(said(page)) == 3
    assert [line for line in said(page) if "silu" in line and "PASS" in line]
    assert differences(page, page) == []
    assert differences(page, re.sub(r"<span>.*?</span>", "<span>7 ≤ 8</span>", page)) == []
    counts = re.search(r'<td class="count">1<td class="count">\d+', page)[0]
    for before, after in (("<b>PASS", "<b>FAIL"), (counts, f"{counts}0")):
        assert len(differences(page, page.replace(before, after, 1))) == 2
    row = re.search(r"<tr[^>]*><th[^>]*>silu.*?\n", page)[0]
    assert len(differences(page, page.replace(row, "", 1))) == 1


@pytest.mark.slow
def test_it_runs_by_itself(tmp_path):
    fresh = tmp_path / "rules.md"
    fresh.write_text(text("rules.md").replace("| PASS", "| FAIL", 1), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, __file__, fresh], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "reports/rules.md: STALE" in done.stdout


def test_ci_and_tox_compare_what_they_have_run() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").partition(FRAMEWORKS)[0]
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8").partition("[testenv:cases]")[2]
    for config in (ci, tox.partition("[testenv:coverage]")[0]):
        made = re.findall(r"-o \S*?/(\w+\.md)", config)
        assert sorted(made) == ["builtin.md", "low.md", "models.md", "rules.md"]
        (compare,) = re.findall(r"tests/test_reports\.py(.*)", config)
        assert all(name in compare or "*.{md,html}" in compare for name in made)


def test_ci_compares_what_the_frameworks_say() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").partition(FRAMEWORKS)[2]
    runs = [line for line in ci.splitlines() if "gradcheck run" in line]
    made = [name for line in runs for name in re.findall(r'-o "\$fresh/([\w/-]+\.md)"', line)]
    assert made == ["part/torch.md", "typical/torch.md", "torch-models.md", "part/jax.md"]
    assert len(runs) == len(made)
    part, whole = re.findall(r"tests/test_reports\.py (.*)", ci)
    assert part == '--part "$fresh"/{part,typical}/*.md'
    assert whole == '"$fresh/torch-models.md"'


@pytest.mark.parametrize("name", PEERS)
def test_a_framework_s_report_has_the_rows_and_counts_of_the_suite_s_own(name: str) -> None:
    own, peer = rows(text("builtin.md")), rows(text(name))
    peer = {row: cells for row, cells in peer.items() if row[2] != CONTRACT}
    assert len(own) > 700
    assert list(peer) == list(own)
    for row, cells in peer.items():
        assert [cells[head] for head in COUNTS] == [own[row][head] for head in COUNTS], row
    assert cases_of(text(name)) == cases_of(text("builtin.md")) != ""


def part_of(name: str, *, same: bool) -> str:
    """A report without contracts and float32; not of the `same` cases: of few, with few samples."""
    cases = cases_of(text(name)) if same else "cases 01234567"
    heads = "| operator | dialect | gradient | `float64` | samples | elements |"
    lines = [f"gradcheck 0.1.0 · {cases}", "", heads]
    known = rows(text(name))
    kept = [*dict.fromkeys(row[:2] for row in known)][: None if same else 40]
    for row, cells in known.items():
        if row[:2] in kept and row[2] != CONTRACT:
            counts = [cells[head] for head in COUNTS] if same else ["1", "2"]
            lines.append(f"| {' | '.join([*row, cells['float64'], *counts])} |")
    return "\n".join(lines)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", PEERS)
def test_a_part_that_says_the_same_is_up_to_date(name: str) -> None:
    for part in (text(name), part_of(name, same=True), part_of(name, same=False)):
        assert part_differences(text(name), part) == []


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("name", PEERS)
def test_what_a_part_says_otherwise_is_noticed(name: str, same: bool) -> None:
    part = part_of(name, same=same)
    *lines, last = part.splitlines()

    def signs(fresh: str) -> str:
        return "".join(line[0] for line in part_differences(text(name), fresh))

    for said in ("**FAIL** 1.2e-03 > 1.0e-08", "UNSUPPORTED", "–"):
        assert signs(re.sub(r"PASS[^|]*\|", f"{said} |", part, count=1)) == "-+"
    assert signs("\n".join([*lines[:-1], last])) == "-"
    assert signs(f"{part}\n| new | default | dx | PASS | 1 | 2 |") == "+"
    assert signs(re.sub(r"\d+ \|$", "77 |", part, count=1, flags=re.MULTILINE)) == "-+" * same
    assert part_differences(text(name), part.replace("float64", "float16"))[:2] == [
        f"{sign}encoder gpt2 forward float16: {said}" for sign, said in (("-", ""), ("+", "PASS"))
    ]
    assert signs("| operator | dialect | gradient |\n") == "-"


def test_other_properties_of_a_contract_are_noticed_where_cases_are_the_same() -> None:
    whole = text("torch.md")
    fewer = re.sub(r"(`side conditions` \| )PASS 11/11", r"\1PASS 10/10", whole, count=1)
    assert len(part_differences(whole, fewer)) == 2
    assert part_differences(whole, re.sub("cases [0-9a-f]{8}", "cases 01234567", fewer)) == []


def test_a_part_is_compared_by_a_flag_and_never_written(reports, tmp_path, capsys):
    committed = reports[0].with_name("torch.md")
    shutil.copy(ROOT / "reports" / "torch.md", committed)
    before = committed.read_bytes()
    fresh = tmp_path / "fresh" / "torch.md"
    fresh.write_text(part_of("torch.md", same=False), encoding="utf-8")
    assert main([str(fresh)]) == 1
    assert main(["--part", str(fresh)]) == 0
    assert "reports/torch.md: up to date, as far as it was judged" in capsys.readouterr().out
    fresh.write_text(fresh.read_text().replace("PASS", "FAIL", 1))
    assert main(["--part", str(fresh)]) == 1
    assert main(["--part", "--write", str(fresh)]) == 2
    assert "--part and --write" in capsys.readouterr().err
    assert committed.read_bytes() == before


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
