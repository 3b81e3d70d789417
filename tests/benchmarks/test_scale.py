"""How a cost grows is fitted right, what grows too fast is named; every curve can be measured."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import fit, scale, scale_points
from benchmarks.scale_points import Point

SIZES = (1e3, 1e4, 1e5, 1e6)


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("start", [0.0, 0.003])
def test_a_known_exponent_is_found_whatever_the_start_costs(exponent, start):
    found = fit.power(SIZES, [start + 1e-6 * n**exponent for n in SIZES])
    assert abs(found.slope - exponent) <= 0.05
    assert found.linear is (exponent <= 1)


def test_noise_widens_the_spread_and_the_truth_stays_within():
    draw = np.random.default_rng(0)
    outside = 0
    for _ in range(200):
        costs = [1e-6 * n * math.exp(0.1 * draw.standard_normal()) for n in np.logspace(3, 7, 9)]
        found = fit.power(np.logspace(3, 7, 9), costs)
        outside += abs(found.slope - 1) > 3 * found.spread
    assert outside <= 20


@pytest.mark.parametrize("costs", [[1, 1, 1, 1], [1, 1.1, 1.19, 1.15], [1, 1, 2, 3]])
def test_what_hardly_grows_has_no_exponent(costs):
    assert fit.power(SIZES, costs) is None


def test_n_log_n_is_called_linear_and_a_little_more_is_not():
    assert fit.power(SIZES, [n * math.log(n) for n in SIZES]).linear
    assert not fit.power(SIZES, [n**1.3 for n in SIZES]).linear


def test_a_line_is_found_with_its_start():
    found = fit.line(SIZES, [0.25 + 3e-6 * n for n in SIZES])
    assert found.start == pytest.approx(0.25)
    assert found.each == pytest.approx(3e-6)


def made_up(name, size, folder):
    """A curve of each kind; one of them is a bug."""
    seconds = 1e-3 + (1e-10 * size**2 if name == "junit" else 1e-6 * size)
    return Point(seconds, 50 + size * (1e-2 if name == "html" else 1e-4), 0.0, size=size / 1e3)


def test_the_command_names_what_grows_too_fast_or_takes_too_much(capsys, tmp_path):
    assert scale.main(["--axis", "results", "-o", str(tmp_path / "x.md")], made_up) == 1
    out = capsys.readouterr().out
    last = out.splitlines()[-2:]
    assert last[0].startswith("junit grows faster than linearly: 1.9")
    assert last[1] == "html of 1,000,000 takes 10,050 MB"
    assert "| 100,000 | read | 0.101 | 60 | 100.00 |" in out
    assert "| read | 1.00 ± 0.00 | 0.001 | 1 | 100.0 |" in out
    assert (tmp_path / "x.md").read_text() == out


def test_quick_is_small_and_passes(capsys):
    assert scale.main(["--axis", "operators", "--axis", "samples", "--quick"], made_up) == 0
    out = capsys.readouterr().out
    assert "1,000" not in out
    assert out.endswith("Nothing grows faster than linearly.\n")


def test_every_curve_that_is_asked_for_exists_and_no_other():
    asked = [name for axis in scale.AXES.values() for name in axis]
    assert sorted(asked) == sorted(scale_points.CURVES)
    assert set(scale.QUICK) == set(scale.AXES)


SMALL = [
    ("check_model float64", 1000), ("check_model float32", 1000), ("check", 1000),
    ("check full=True", 256), ("read", 300), ("json", 300), ("html", 300), ("diff", 300),
    ("merge", 300),
]  # fmt: skip


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(("curve", "n"), SMALL)
def test_a_point_counts_what_it_measures(curve, n, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scale_points, "LEAST_SECONDS", 0.0)
    point = scale_points.CURVES[curve](n)
    assert point.seconds > 0
    assert point.peak >= point.before > 0
    if curve.startswith("check"):
        assert point.forwards >= 6
    else:
        assert point.size > 0


@pytest.mark.slow
def test_a_point_is_measured_in_a_process_of_its_own(tmp_path):
    point = scale.measure("run, one operator", 1, str(tmp_path))
    assert point.peak > 10
    assert point.size > 0
    lines = (tmp_path / "suite-1-1" / "run.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["footer"]["passed"]


def test_a_wrong_gradient_is_no_point(tmp_path, monkeypatch):
    monkeypatch.setattr(scale_points.Layer, "gradient", lambda layer: layer.w)
    with pytest.raises(RuntimeError, match="a right gradient was not passed"):
        scale_points.model(400, "float64")


def test_synthetic_results_are_read_back_as_they_were_made(tmp_path, monkeypatch):
    from benchmarks import reports
    from gradcheck.results.stored.read import read
    from gradcheck.run.merge import Named, merged

    monkeypatch.chdir(tmp_path)
    log = scale_points.written(240)
    run = read(log)
    assert run.complete
    assert run.results == reports.results(240)
    shards = [Named(p.name, read(p)) for p in scale_points._shards(log, 4)]
    assert merged(shards).results == run.results
    assert sum(len(one.run.results) for one in shards) == 240


def test_an_unknown_curve_ends_the_measurement():
    call = [sys.executable, "-m", "benchmarks.scale_points", "nothing", "1", "."]
    assert subprocess.run(call, capture_output=True, check=False).returncode != 0
