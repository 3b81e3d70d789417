"""The evidence as text: the same cells and the same steps, at any width of a terminal."""

import math
import re

import pytest

from gradcheck.report.ascii_plots import bars_of, map_of, of
from gradcheck.results.verdict import Verdict

BAR = re.compile(r"^(\S+) +(\S+) +([█░│ ]*?)(?:  best)?$")


def failed(make, **changes):
    return make.result(verdict=Verdict.FAIL, **changes)


def test_a_map_is_printed_row_by_row_with_its_indices(make):
    said, numbers, *rows = map_of(failed(make, heat=make.heat((".3.!", "9..0", "?..."))).finding)
    assert said == (
        "map: dx, 3 × 4 under the cotangent normal; axis 0 ↓, axis 1 → (n: off by 10ⁿ × tolerance "
        "or more, . within it, ! NaN or infinite, ? unresolved)"
    )
    assert numbers == "   0"
    assert rows == ["0  .3.!", "1  9..0", "2  ?..."]


def test_every_tenth_column_is_numbered(make):
    heat = make.heat(("1" * 48,) * 2, shape=(2, 480))
    _, numbers, first, _ = map_of(failed(make, heat=heat).finding)
    for label in ("0", "100", "200", "300", "400"):
        assert (numbers.index(f" {label}") + 1 - 3) * 10 == int(label)
    assert first == "0  " + "1" * 48


def test_legends_name_only_what_is_there(make):
    said, *_ = map_of(failed(make, heat=make.heat(("..7",))).finding)
    assert said.endswith("(n: off by 10ⁿ × tolerance or more, . within it)")
    said, *rows = map_of(failed(make, heat=make.heat(("!",), shape=())).finding)
    assert said == "map: dx under the cotangent normal (! NaN or infinite)"
    assert rows == ["!"]


def read(lines):
    """Per step: its text, its error, the bar's length and kind, and where the marker stands."""
    out = []
    for line in lines:
        step, error, bar = BAR.match(line).groups()
        solid = bar.replace("│", "█" if "█" in bar else "░").rstrip()
        out.append((step, float(error), len(solid), "█" in bar, bar.find("│")))
    return out


def test_a_v_is_a_bar_per_decade(make):
    said, head, *lines = bars_of(failed(make, curve=make.vcurve(0.01)).finding)
    assert "this gradient is off by 0.01, " in said
    assert head.split() == ["h", "off", "by"]
    found = read(lines)
    assert [step for step, *_ in found][:4] == ["1", "10⁻¹", "10⁻²", "10⁻³"]
    assert len({mark for *_, mark in found}) == 1
    assert sum(line.endswith("best") for line in lines) == 1
    (best,) = [row for row, line in zip(found, lines, strict=True) if line.endswith("best")]
    assert best[1] == min(error for _, error, *_ in found)
    kinds = [solid for *_, solid, _ in found]
    assert kinds == sorted(kinds, reverse=True)  # truncation first, then what rounding explains


def test_a_bar_is_as_long_as_the_logarithm_of_its_error(make):
    _, _, *lines = bars_of(failed(make, curve=make.vcurve(1e-13)).finding)
    pairs = sorted((error, length) for _, error, length, *_ in read(lines))
    lengths = [length for _, length in pairs]
    assert lengths == sorted(lengths)
    (low, short), (high, long) = pairs[0], pairs[-1]
    per = (long - short) / math.log10(high / low)
    assert all(
        length - short == pytest.approx(per * math.log10(error / low), abs=1.1)
        for error, length in pairs
    )


@pytest.mark.parametrize("off", [0.0, math.nan, math.inf])
def test_what_is_no_size_has_no_mark(make, off):
    _, _, *lines = bars_of(failed(make, curve=make.vcurve(off)).finding)
    assert "│" not in "".join(lines)


def test_steps_without_a_value_are_left_out(make):
    errors = (math.nan, math.inf, *make.vcurve().errors[2:])
    _, _, *lines = bars_of(failed(make, curve=make.vcurve(errors=errors)).finding)
    assert lines[0].startswith("10⁻¹ ")
    assert bars_of(failed(make, curve=make.vcurve(errors=(math.nan,) * 27)).finding) == []


def test_what_is_too_wide_is_said_in_words_alone(make):
    result = failed(make, heat=make.heat(("1" * 48,)), curve=make.vcurve())
    wide, narrow = of(result.finding, 60), of(result.finding, 40)
    assert [len(part) for part in wide] == [3, 16]
    assert [len(part) for part in narrow] == [1, 1]
    assert [part[0] for part in wide] == [part[0] for part in narrow]
    assert all(len(line) <= 56 for part in of(result.finding, 56) for line in part[1:])


def test_nothing_is_said_of_nothing(make):
    assert of(make.result().finding, 80) == []


def test_foreign_text_is_one_clean_line(hostile):
    for result in hostile.results:
        for part in of(result.finding, 100):
            assert not any("\x1b" in line or "\n" in line for line in part)
