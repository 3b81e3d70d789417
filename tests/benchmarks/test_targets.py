"""Targets are fed with made-up measurements: what is reached, missed, missed by too much."""

import math

import pytest

from benchmarks.__main__ import verdict
from benchmarks.measure import Cell, Count, Effort, Measured
from benchmarks.peers import PEERS
from benchmarks.table import Row
from benchmarks.targets import (
    ALARMS,
    FAST,
    FLOOR,
    MISSED,
    PARALLEL,
    SLOW,
    TARGETS,
    Figure,
    Target,
    figures,
    outcomes,
)
from benchmarks.workloads import WORKLOADS

EFFORT = Effort(peers=("projection", "full", "torch-fast", "torch-slow"), counted=("projection",))
AT_MOST = Target(what="ours / theirs", where="gelu", limit=0.5)
AT_LEAST = Target(what="parallel", limit=1.7, at_least=True)


def judged(target, value):
    figure = Figure(what=target.what, where=target.where, value=value, of="")
    (outcome,) = outcomes([figure], [target])
    return outcome


@pytest.mark.parametrize(
    ("target", "value", "reached", "code", "said"),
    [
        (AT_MOST, 0.5, True, 0, "reached"),
        (AT_MOST, 0.6, False, 0, "**missed**, by 20%"),
        (AT_MOST, 0.66, False, 1, "**missed**, by 32%"),
        (AT_MOST, 5.0, False, 1, "**missed**, by 10.0 times"),
        (AT_MOST, math.nan, False, 1, "**missed**"),
        (AT_MOST, math.inf, False, 1, "**missed**"),
        (AT_LEAST, 1.8, True, 0, "reached"),
        (AT_LEAST, 1.42, False, 0, "**missed**, by 20%"),
        (AT_LEAST, 1.2, False, 1, "**missed**, by 42%"),
        (AT_LEAST, 0.0, False, 1, "**missed**"),
        (AT_LEAST, math.nan, False, 1, "**missed**"),
    ],
)
def test_by_how_much_a_target_is_missed(target, value, reached, code, said, capsys):
    outcome = judged(target, value)
    assert outcome.reached is reached
    assert outcome.said == said
    assert verdict([outcome]) == code
    assert (target.name in capsys.readouterr().err) is bool(code)


def test_what_was_not_measured_is_no_failure_and_not_reached():
    (outcome,) = outcomes([], [AT_MOST])
    assert outcome.said == "not measured"
    assert not outcome.reached
    assert verdict([outcome]) == 0


def cell(key, workload, cpu=None, **known):
    times = [] if cpu is None else [cpu]
    return Cell(peer=PEERS[key], workload=workload, warm_cpu=times, **known)


def measured(*cells):
    return Measured(
        cells={(c.workload, c.peer.key): c for c in cells}, absent={}, versions={}, effort=EFFORT
    )


def value_of(found, what, where):
    (figure,) = [f for f in found if (f.what, f.where) == (what, where)]
    return figure.value


def test_ratios_are_ours_over_theirs():
    found = figures(
        measured(
            cell("projection", "gelu", 0.002), cell("torch-fast", "gelu", 0.008),
            cell("full", "gelu", 0.01, floor=0.004, unstructured=0.005),
            cell("torch-slow", "gelu", 2.0),
        ),
        [Row(what=PARALLEL, a="one", b="two", a_ms=3.4, b_ms=2.0, ratio=1.7)],
    )  # fmt: skip
    assert value_of(found, FAST, "gelu") == 0.25
    assert value_of(found, SLOW, "gelu") == 0.005
    assert value_of(found, FLOOR, "gelu") == 1.25
    assert value_of(found, PARALLEL, "") == 1.7
    assert {(f.what, f.where) for f in found} <= {(t.what, t.where) for t in TARGETS}


def test_ours_that_crashes_reaches_nothing_and_a_peer_that_does_leaves_nothing_to_judge():
    lost = cell("projection", "gelu", note="crashed: SIGSEGV")
    found = figures(measured(lost, cell("torch-fast", "gelu", 0.008)), [])
    for what, where in ((FAST, "gelu"), (MISSED, "projection"), (ALARMS, "projection")):
        assert math.isnan(value_of(found, what, where))
    assert verdict(outcomes(found)) == 1
    lost = cell("torch-fast", "gelu", note="over 60 s")
    found = figures(measured(cell("projection", "gelu", 0.002), lost), [])
    assert {f.what for f in found} == {ALARMS}


def test_ours_that_rejects_a_right_gradient_while_timed_is_a_false_alarm():
    found = figures(measured(cell("projection", "gelu", 0.002, first=0.1, rejected=1)), [])
    assert value_of(found, ALARMS, "projection") == 0.5


def test_planted_errors_and_false_alarms_are_pooled_over_all_workloads():
    found = figures(
        measured(
            cell("projection", "gelu", 0.002, detected={0.1: Count(199, 200)},
                 alarms={"gelu": Count(0, 200)}),
            cell("projection", "gpt", 0.002, detected={0.1: Count(200, 200)},
                 alarms={"gpt": Count(1, 198)}),
        ),
        [],
    )  # fmt: skip
    assert value_of(found, MISSED, "projection") == 1 / 400
    assert value_of(found, ALARMS, "projection") == 1 / 400
    assert verdict(outcomes(found)) == 1


def test_there_is_a_target_for_every_workload():
    for what in (FAST, SLOW, FLOOR):
        assert [t.where for t in TARGETS if t.what == what] == list(WORKLOADS)
