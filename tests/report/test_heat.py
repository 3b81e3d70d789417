"""The picture of a heat map: each cell in its place, told by a glyph as well as by its shade."""

import itertools
import re

import pytest

from gradcheck.report import heat
from gradcheck.report.heat import GAP, HEAD, LEAST, MOST, picture, says, scale
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

STROKE = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)")


def failed(make, *rows, **changes):
    return make.result(verdict=Verdict.FAIL, heat=make.heat(rows, **changes) if rows else None)


def filled(path, at):
    """The cells that a dashed stroke fills, as (row, column)."""
    cell = at.side + at.gap
    left = min(float(x) for p in (at.grid, *(p.path for p in at.patches))
               for x, _, _ in STROKE.findall(p))  # fmt: skip
    cells = []
    for x, y, length in STROKE.findall(path):
        row = (float(y) - HEAD - at.side / 2) / cell
        first = (float(x) - left) / cell
        count = (float(length) + GAP) / cell
        assert row == pytest.approx(round(row))
        assert first == pytest.approx(round(first))
        assert count == pytest.approx(round(count))
        cells += [(round(row), round(first) + k) for k in range(round(count))]
    return cells


MAPS = [
    (".3.!", "9..0", "?..."),
    ("0123456789",),
    tuple("!?.5"),
    ("." * 48,) * 31 + ("." * 47 + "7",),
    ("1" * 48,) * 32,
]


@pytest.mark.parametrize("rows", MAPS)
def test_every_cell_is_in_the_patch_of_its_glyph_and_in_no_other(make, rows):
    at = picture(failed(make, *rows).finding)
    paths = {".": at.grid, **{patch.glyph: patch.path for patch in at.patches}}
    for glyph, path in paths.items():
        want = [(i, j) for i, row in enumerate(rows) for j, g in enumerate(row) if g == glyph]
        assert [(i, j) for i, j in filled(path, at)] == want
    assert sum(len(filled(path, at)) for path in paths.values()) == sum(map(len, rows))
    assert [patch.count for patch in at.patches] == [
        sum(row.count(patch.glyph) for row in rows) for patch in at.patches
    ]


@pytest.mark.parametrize("rows", MAPS)
def test_every_glyph_stands_in_the_middle_of_its_cell(make, rows):
    at = picture(failed(make, *rows).finding)
    cell = at.side + at.gap
    seen = {}
    for glyphs in at.glyphs:
        xs = glyphs.xs.split()
        assert len(xs) == len(glyphs.text)
        row = int((glyphs.y - HEAD) // cell)
        for x, glyph in zip(xs, glyphs.text, strict=True):
            seen.setdefault(row, {})[float(x)] = glyph
            assert (glyphs.shade == "light") == (glyph in heat.DARK)
    for i, row in enumerate(rows):
        assert "".join(g for _, g in sorted(seen.get(i, {}).items())) == row.replace(".", "")
    places = sorted({x for row in seen.values() for x in row})
    gaps = [(b - a) / cell for a, b in itertools.pairwise(places)]
    assert gaps == pytest.approx([round(gap) for gap in gaps])


def test_no_two_glyphs_share_their_class_or_their_meaning(make):
    at = picture(failed(make, "0123456789!?.").finding)
    assert len({patch.tone for patch in at.patches}) == 12
    assert len({patch.says for patch in at.patches}) == 12
    assert [patch.glyph for patch in at.patches] == list("?0123456789!")


@pytest.mark.parametrize(
    ("glyph", "text"),
    [
        ("0", "≥ 1 × tolerance"),
        ("1", "≥ 10 × tolerance"),
        ("9", "≥ 10⁹ × tolerance"),
        ("!", "NaN or infinite"),
        ("?", "unresolved"),
    ],
)
def test_the_scale_says_what_a_glyph_stands_for(glyph, text):
    assert scale(glyph) == text


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 5), (32, 48), (32, 2), (1, 48)])
def test_small_maps_have_larger_cells(make, rows, columns):
    at = picture(failed(make, *["." * columns] * rows).finding)
    cell = at.side + at.gap
    assert LEAST <= cell <= MOST
    assert (cell == MOST) == (max(rows, columns) <= 13)
    assert at.height == HEAD + rows * cell
    assert at.width >= columns * cell


def test_rows_are_called_by_all_indices_but_the_last(make):
    at = picture(failed(make, *[".1"] * 6, shape=(2, 3, 2)).finding)
    assert [text.text for text in at.down] == ["0, 0", "0, 1", "0, 2", "1, 0", "1, 1", "1, 2"]
    assert "2 × 3 × 2 under the cotangent normal; axes 0, 1 ↓, axis 2 →" in at.caption
    at = picture(failed(make, ".1", shape=(2,)).finding)
    assert at.down == ()
    assert at.caption == "dx, 2 under the cotangent normal"


def test_a_block_is_named_by_its_first_element(make):
    at = picture(failed(make, *["1" * 34] * 22, shape=(64, 100)).finding)
    assert [text.text for text in at.down] == [str(3 * k) for k in range(22)]
    numbers = [int(text.text) for text in at.across]
    assert numbers[0] == 0
    assert all(n % 3 == 0 for n in numbers)
    assert at.caption.endswith("; a cell is the worst of 3 × 3 elements")


def test_numbers_of_columns_do_not_touch(make):
    for wide in (5, 48, 480, 48_000):
        at = picture(failed(make, "." * min(wide, 48), shape=(wide,)).finding)
        gaps = [
            (b.x - len(b.text) * heat.DIGIT / 2) - (a.x + len(a.text) * heat.DIGIT / 2)
            for a, b in itertools.pairwise(at.across)
        ]
        assert all(gap > 0 for gap in gaps)


def test_a_scalar_is_one_cell(make):
    at = picture(failed(make, "7", shape=()).finding)
    assert (len(at.patches), at.grid) == (1, "")
    assert at.caption == "dx under the cotangent normal"


def test_a_stage_is_named_by_the_tensor_that_is_wrong(make):
    result = make.of_model(
        "h.0.attn", Verdict.FAIL, part=Part.STAGE, heat=make.heat(),
        worst=(make.miss(tensor="h.0.qkv"),),
    )  # fmt: skip
    assert says(result.finding).startswith("d h.0.qkv, 3 × 4")
    assert picture(result.finding).label == "where d h.0.qkv is wrong"


def test_nothing_is_drawn_of_nothing(make):
    assert picture(make.result().finding) is None
    assert says(make.result().finding) == ""
