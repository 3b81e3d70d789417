"""A sharded model is judged as the whole one is, by scalars; what only shards get wrong is seen."""

import signal

import numpy as np
import pytest

from benchmarks.sharded import __main__ as command
from benchmarks.sharded import cost
from benchmarks.sharded.check import check
from benchmarks.sharded.layout import laid_out
from benchmarks.sharded.mesh import Lost, Mesh
from benchmarks.sharded.model import Alone, Shard
from benchmarks.sharded.planted import BUGS, IN_NUMBERS, Plant
from benchmarks.sharded.wire import REPLY, REQUEST, Ask, Request
from gradcheck.results.verdict import Verdict

LAYOUT = laid_out(4, 2500, 2, 4)
PAIR = laid_out(2, 600, 2, 4)
NAME = "1.up"


def found(plant=None, layout=LAYOUT, dtype="float64", search=0):
    with Mesh(layout, dtype, plant=plant or Plant()) as mesh:
        return command.measured(mesh, search)


def rejected(judged):
    return {f.name: f.reason for f in judged.findings if f.verdict is Verdict.FAIL}


@pytest.fixture(scope="module")
def right():
    return found()


@pytest.mark.slow
def test_a_right_model_passes_and_so_does_each_tensor(right):
    assert [f.verdict for f in right.findings] == [Verdict.PASS] * len(LAYOUT.shapes)
    assert [f.name for f in right.findings] == [*LAYOUT.shapes]


@pytest.mark.slow
def test_verdicts_and_slopes_are_those_of_the_model_in_one_process(right):
    theirs = command.unsharded(LAYOUT, "float64", Plant())
    assert [f.verdict for f in right.findings] == [f.verdict for f in theirs]
    assert [f.evaluations for f in right.findings] == [f.evaluations for f in theirs]
    assert command.apart(right.findings, theirs) <= 1e-12
    assert command.apart_in_bars(right.findings, theirs) <= 1


def test_every_byte_and_every_forward_is_that_of_the_formula(right):
    total = sum(one.forwards for one in right.judged)
    assert right.forwards == (total + 1,) * LAYOUT.workers  # and the backward's own
    told, holders = LAYOUT.workers, LAYOUT.ranks
    for one in right.judged[1:]:
        assert one.bytes == cost.tensor(told, holders, one.forwards, one.draws)
    assert {one.forwards for one in right.judged[1:]} == {cost.FORWARDS}
    assert right.check_bytes == sum(one.bytes for one in right.judged)
    sent, received = right.model_bytes
    anyway = total * cost.forward(LAYOUT, 8) + cost.backward(LAYOUT, 8)
    assert sent == received == anyway + cost.introduction(LAYOUT)
    assert right.copy == 8 * LAYOUT.hidden * LAYOUT.width // LAYOUT.ranks


def test_a_message_is_as_long_whatever_the_model():
    assert (REQUEST.size, REPLY.size) == (56, 40)
    large = Request(ask=Ask.BACK, tensor=639, key=2**128 - 1, start=10**11, stop=2 * 10**11, t=0.5)
    assert Request.unpacked(large.packed()) == large
    assert len(large.packed()) == REQUEST.size


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_says_the_same(workers, right):
    """Three ranks cut the rows unevenly."""
    layout = laid_out(workers, 2500, 2, 4)
    other = found(layout=layout)
    assert [f.verdict for f in other.findings] == [Verdict.PASS] * len(layout.shapes)
    assert command.apart(other.findings, right.findings) <= 1e-12
    assert other.judged[2].bytes == cost.tensor(workers, workers, 6, other.judged[2].draws)


@pytest.mark.slow
def test_a_wrong_element_of_any_worker_is_named_with_its_place():
    part = LAYOUT.parts(NAME)[1]
    seen = found(Plant("element", NAME, part.worker, 17), search=300)
    assert rejected(seen) == {
        NAME: "1 of 576 elements is wrong; wrong in the part of worker 3 (stage 1, rank 1), "
        f"elements {part.start} to {part.stop - 1} alone"
    }
    (miss,) = next(f for f in seen.findings if f.name == NAME).worst
    assert np.ravel_multi_index(miss.index, LAYOUT.shapes[NAME]) == part.start + 17
    assert miss.got == pytest.approx(1.1 * miss.want, rel=1e-6)
    assert seen.check_bytes < 200_000  # extra scalars only


@pytest.mark.slow(rest=2)
@pytest.mark.parametrize(
    ("bug", "says"),
    [
        ("shard", "wrong in the part of worker 1 (stage 0, rank 1), elements 72 to 143 alone"),
        ("tensor", "the whole of it is -1 times"),
        ("nan", "1 numbers are not finite, at worker 1 (stage 0, rank 1)"),
    ],
)
def test_wrong_numbers_are_found_and_whose_they_are(bug, says):
    wrong = rejected(found(Plant(bug, NAME, 1, 5), PAIR))
    assert [*wrong] == [NAME]
    assert says in wrong[NAME]


GAINS = ["0.gain", "1.gain"]


@pytest.mark.slow(rest=2)
@pytest.mark.parametrize(
    ("bug", "where", "says"),
    [
        ("replica-not-summed", GAINS, "its replicas have different gradients"),
        ("rank-counted-twice", GAINS, "it is off by"),
        ("mean-for-sum", GAINS, "the whole of it is 0.5 times"),
        ("bias-summed-twice", ["0.down_bias", "1.down_bias"], "the whole of it is 2 times"),
        ("cotangent-not-summed", ["0.down_bias"], "its replicas have different gradients"),
        ("mask-of-its-own", ["1.up"], "it is off by"),
        ("replica-of-its-own", GAINS, "has another replica of it than worker"),
    ],
)
def test_what_only_shards_get_wrong_is_rejected_and_passes_in_one_process(bug, where, says):
    plant = Plant(bug)
    wrong = rejected(found(plant, PAIR))
    for name in where:
        assert says in wrong[name]
    if where in (GAINS, ["0.down_bias", "1.down_bias"]) and bug != "replica-of-its-own":
        assert [*wrong] == where  # nobody else is blamed
    alone = command.unsharded(PAIR, "float64", plant)
    assert {f.verdict for f in alone} == {Verdict.PASS}


def test_every_bug_is_put_to_the_test():
    tried = {"element", "shard", "tensor", "nan", "replica-not-summed", "rank-counted-twice",
             "mean-for-sum", "bias-summed-twice", "cotangent-not-summed", "mask-of-its-own",
             "replica-of-its-own"}  # fmt: skip
    assert tried == {*BUGS}
    assert {*IN_NUMBERS} < tried


@pytest.mark.slow
def test_a_killed_worker_is_one_line_and_the_rest_is_kept():
    with Mesh(LAYOUT) as mesh:
        findings = []
        for one in check(mesh):
            findings.append(one.finding)
            if len(findings) == 4:
                mesh.processes[2].kill()
        processes = list(mesh.processes)
    assert [f.verdict for f in findings[:4]] == [Verdict.PASS] * 4
    left = findings[4:]
    assert [f.name for f in left] == [*LAYOUT.shapes][3:]
    assert {f.verdict for f in left} == {Verdict.NOTRUN}
    assert [f.reason for f in left if f.reason] == ["worker 2 (stage 1, rank 0) is gone (SIGKILL)"]
    assert all(p.poll() is not None for p in processes)  # nobody is left behind


@pytest.mark.slow
def test_a_worker_that_hangs_is_missed():
    with Mesh(PAIR) as mesh:
        mesh.wait(0.5)
        mesh.processes[0].send_signal(signal.SIGSTOP)
        (only,) = check(mesh)
    assert only.finding.verdict is Verdict.NOTRUN
    assert only.finding.reason == "worker 0 (stage 0, rank 0) did not answer within 0.5 s"


@pytest.mark.slow
def test_what_a_worker_raises_is_said():
    with Mesh(PAIR) as mesh, pytest.raises(Lost, match=r"worker 1 .*: IndexError: "):
        mesh.ask(Request(ask=Ask.SURVEY, tensor=999), [1])


@pytest.mark.slow
def test_tensors_are_put_back_bit_by_bit():
    with Mesh(LAYOUT) as mesh:

        def sums():
            ask = Request(ask=Ask.SURVEY, tensor=[*LAYOUT.shapes].index(NAME))
            return {w: r.count for w, r in mesh.ask(ask, [2, 3]).items()}

        before = sums()
        mesh.ask(Request(ask=Ask.AHEAD, tensor=6, key=3, stop=576, t=0.1), mesh.everyone)
        assert sums() != before
        mesh.ask(Request(ask=Ask.RESTORE), mesh.everyone)
        assert sums() == before
        list(check(mesh, search=0))
        assert sums() == before


def test_shards_of_a_model_are_parts_of_the_whole():
    one = Shard(laid_out(1, 2500, 2, 4), 0, Alone())
    for worker in range(LAYOUT.workers):
        part = Shard(LAYOUT, worker, Alone())
        for name, array in part.params.items():
            (own,) = [p for p in LAYOUT.parts(name) if p.worker == worker]
            whole = one.params[name].reshape(-1)
            assert np.array_equal(array.reshape(-1), whole[own.start : own.stop])


@pytest.mark.parametrize(("workers", "stages"), [(4, 3), (4, 4), (200, 1)])
def test_what_cannot_be_laid_out_is_refused(workers, stages):
    with pytest.raises(ValueError, match="cannot"):
        laid_out(workers, 2500, 2, 4, stages)


def test_a_projection_is_the_formula_of_the_simulation():
    small = cost.Projected(LAYOUT, 8)
    assert small.forwards == 2 + 6 * 10
    assert small.bytes == 2 * 4 * 96 + 10 * 96 * (4 * 6 + 2 * 3)
    assert small.fewest_bytes < small.bytes
    large = cost.Projected(laid_out(1024, 1e11, 128, 2048, 128), 4)
    assert large.layout.parameters == pytest.approx(1e11, rel=1e-3)
    assert large.bytes == 2 * 1024 * 96 + 640 * 96 * (1024 * 6 + 8 * 3)
    assert large.bytes < large.forward / 500  # all of it, beside one forward's own traffic
    assert large.copy < large.held


@pytest.mark.slow
def test_the_command_prints_what_was_counted(capsys):
    command.main(["--workers", "2", "--parameters", "2500", "--layers", "2", "--batch", "4"])
    out = capsys.readouterr().out
    rows = [line.split("|")[2:4] for line in out.splitlines() if line.startswith("| bytes")]
    assert len(rows) == 5
    assert all(formula == counted for formula, counted in rows)
    assert "10 of 10 verdicts are the same" in out
