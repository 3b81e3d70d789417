"""The schedule, with peers that are made up: some crash, hang, or answer nonsense."""

import sys

import pytest

from benchmarks.conversation import Conversation, LostPeer
from benchmarks.measure import Count, Effort, Meeting, hard_at, pooled
from benchmarks.peers import Peer
from benchmarks.workloads import HARD, WORKLOADS

SEC = 0.001
NAMES = ("sound", "crashes", "hangs", "junk", "refuses", "late")
PEERS = {name: Peer(key=name, name=name, module=name) for name in NAMES}
PEERS["absent"] = Peer(key="absent", name="Absent", module="x", needs=("no_such_package",))


class Script:
    """A peer that does what its name says."""

    def __init__(self, key, heard):
        self.key, self.heard, self.lost = key, heard, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.heard.append((self.key, "closed"))

    def ask(self, limit, **request):
        self.heard.append((self.key, request["do"]))
        if self.key == "refuses" and request["do"] == "check":
            return {"error": "MemoryError: no room"}
        if self.key == "late" and request["do"] == "count":
            raise LostPeer("crashed: SIGSEGV")
        if request["do"] == "import":
            return {"cpu": 2 * SEC, "wall": SEC, "versions": {"numpy": "9"}}
        if request["do"] == "count":
            made = min(request["trials"], 7)
            return {"made": made, "rejected": made if request["size"] else 0, "cpu": SEC}
        times = request.get("times", 1)
        return {"rejected": 0, "wall": [SEC] * times, "cpu": [SEC] * times}


PROCESSES = {
    "crashes": "import os\ninput(); os.abort()",
    "hangs": "import time\ntime.sleep(60)",
    "junk": "print('hello', flush=True); input(); input()",
}


@pytest.fixture
def meeting():
    def made(*names, **changes):
        heard, told = [], []

        def start(key):
            if key in PROCESSES:
                return Conversation([sys.executable, "-S", "-c", PROCESSES[key]])
            return Script(key, heard)

        patience = 0.3 if "hangs" in names else 300.0
        given = {"workloads": ("rms_norm",), "rounds": 2, "patience": patience} | changes
        effort = Effort(peers=names, counted=names, **given)
        return Meeting(effort, told.append, start, PEERS).measure(), heard

    return made


def test_a_sound_peer_is_timed_and_counted(meeting):
    measured, heard = meeting("sound")
    cell = measured.cell("rms_norm", "sound")
    assert (cell.first, cell.imported, cell.cpu, cell.note) == (SEC, 2 * SEC, SEC, "")
    assert cell.checks == 10
    assert cell.detected == {0.1: Count(7, 7), 0.01: Count(7, 7)}
    assert set(cell.alarms) == {"rms_norm", *hard_at("rms_norm")}
    assert pooled([*cell.alarms.values()]) == Count(0, 7 * len(cell.alarms))
    assert heard[-1] == ("sound", "closed")
    assert measured.versions == {"numpy": "9"}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crashes", "crashed: SIGABRT"),
        ("hangs", "over 0 s"),
        ("junk", "no answer but 'hello'"),
        ("refuses", "MemoryError: no room"),
        ("late", "crashed: SIGSEGV"),
    ],
)
def test_what_becomes_of_a_peer_is_its_row_and_the_rest_is_intact(meeting, name, said):
    measured, _ = meeting(name, "sound")
    assert measured.cell("rms_norm", name).note == said
    sound = measured.cell("rms_norm", "sound")
    assert sound.note == ""
    assert sound.checks == 10
    assert sound.detected[0.1] == Count(7, 7)


def test_one_who_is_lost_is_not_asked_again(meeting):
    _, heard = meeting("refuses", "sound")
    assert [what for key, what in heard if key == "refuses"] == ["import", "check", "closed"]


def test_peers_take_turns(meeting):
    PEERS["second"] = Peer(key="second", name="second", module="second")
    _, heard = meeting("sound", "second")
    checks = [key for key, what in heard if what == "check"]
    assert checks == ["sound", "second", "sound", "second", "second", "sound"]


def test_who_is_not_installed_is_absent_and_no_error(meeting):
    measured, heard = meeting("absent", "sound")
    assert measured.absent == {"Absent": ("no_such_package",)}
    assert measured.cell("rms_norm", "absent") is None
    assert {key for key, _ in heard} == {"sound"}


def test_one_process_serves_all_workloads_where_first_calls_do_not_matter(meeting):
    for fresh, starts in ((True, 2), (False, 1)):
        _, heard = meeting("sound", fresh=fresh, workloads=("rms_norm", "softmax"))
        assert heard.count(("sound", "import")) == starts
        assert heard.count(("sound", "closed")) == starts


def test_who_is_lost_in_one_workload_has_a_new_process_in_the_next(meeting):
    measured, _ = meeting("crashes", fresh=False, workloads=("rms_norm", "softmax"))
    assert measured.cell("softmax", "crashes").note == "crashed: SIGABRT"


def test_what_takes_too_long_is_not_asked_to_count(meeting):
    measured, heard = meeting("sound", count=SEC / 10, hard=SEC / 10)
    assert measured.cell("rms_norm", "sound").detected == {}
    assert ("sound", "count") not in heard


def test_every_hard_input_is_tried_somewhere_once():
    assert sorted(name for w in WORKLOADS for name in hard_at(w)) == sorted(HARD)
