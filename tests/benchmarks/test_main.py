import pytest

from benchmarks import __main__ as command
from benchmarks.comparison import text
from benchmarks.measure import FULL, QUICK, Cell, Count, Effort, Measured
from benchmarks.peers import PEERS
from benchmarks.targets import figures, outcomes


@pytest.mark.parametrize(
    "words",
    [
        ["--slow"],
        ["--workload", "conv9d"],
        ["--peer", "somebody"],
        ["-o", "/no/such/folder/table.md"],
        ["extra"],
    ],
)
def test_bad_usage_is_2_before_anything_is_measured(words, capsys):
    with pytest.raises(SystemExit) as end:
        command.main(words)
    assert end.value.code == 2
    assert "usage: python -m benchmarks" in capsys.readouterr().err


def cells():
    made = {}
    for key, spent in (("projection", 0.002), ("torch-fast", 0.002), ("numdifftools", None)):
        cell = Cell(peer=PEERS[key], workload="gelu", imported=0.1, first=spent)
        if spent is None:
            cell.note = "over 60 s"
        else:
            cell.warm_cpu, cell.warm_wall = [spent] * 3, [spent] * 3
            cell.alarms["gelu"] = Count(0, 200)
        made["gelu", key] = cell
    return made


def made_up(**changes):
    effort = Effort(peers=("projection", "torch-fast", "numdifftools"), counted=("projection",))
    given = {"cells": cells(), "absent": {"jax check_grads": ("jax",)}, "effort": effort,
             "versions": {"numpy": "9.9"}}  # fmt: skip
    return Measured(**(given | changes))


class Fake:
    """A meeting whose measurements are made up."""

    def __init__(self, effort, tell):
        tell("nothing")

    def measure(self):
        return made_up()


def test_quick_ends_with_1_and_names_the_row_and_the_whole_run_with_0(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(command, "Meeting", Fake)
    monkeypatch.setattr(command, "beside", lambda quick, tell: [])
    assert command.main(["--quick"]) == 1
    assert "missed: projection / torch, fast_mode, gelu: 1, target ≤ 0.5" in capsys.readouterr().err
    file = tmp_path / "table.md"
    assert command.main(["-o", str(file)]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_the_tables_name_who_is_absent_and_what_became_of_whom():
    measured = made_up()
    said = text(measured, outcomes(figures(measured, [])))
    assert "Absent: jax check_grads (no jax)." in said
    (lost,) = [line for line in said.splitlines() if "over 60 s" in line]
    assert lost.startswith("| gelu | numdifftools |")
    (ours,) = [line for line in said.splitlines() if line.startswith("| gelu | gradcheck, proj")]
    assert "| 2 | 2 | 2 | 3 | 2 | 102 | 1 |" in ours
    assert "0 of 200" in ours
    assert "numpy 9.9" in said
    assert "by 2.0 times" in said
    assert "| gradcheck, projection | 1 |  | 102 |  |  | 0% of 200 |  |" in said


def test_only_what_is_named_is_measured():
    found = command.narrowed(FULL, ["gpt", "gelu"], ["torch-fast", "projection"])
    assert found.workloads == ("gelu", "gpt")
    assert found.peers == ("projection", "torch-fast")
    assert command.narrowed(QUICK, None, None) == QUICK
