"""Each tool in its own process accepts a right gradient and rejects a grossly wrong one."""

import pytest

from benchmarks.conversation import with_peer
from benchmarks.peers import PEERS, Peer
from benchmarks.workloads import WORKLOADS

LIMIT = 120
GROSS = 1e4


@pytest.mark.slow(keep=3, rest=1)
@pytest.mark.parametrize("key", PEERS)
def test_accepts_what_is_right_and_rejects_what_is_grossly_wrong(key):
    peer = PEERS[key]
    if peer.absent:
        pytest.skip(f"{', '.join(peer.absent)} is not installed")
    workload = "rms_norm" if peer.takes("rms_norm") else "gpt"
    with with_peer(key) as talk:
        assert talk.ask(LIMIT, do="import")["cpu"] > 0
        found = talk.ask(LIMIT, do="check", workload=workload, seed=1)
        assert found["rejected"] == 0
        assert len(found["cpu"]) == len(found["wall"]) == 1
        if not peer.own:
            words = {"do": "count", "workload": workload, "seed": 2, "trials": 2, "budget": 0.0}
            assert talk.ask(LIMIT, **words, size=GROSS) | {"cpu": 0} == {
                "made": 1, "rejected": 1, "cpu": 0,
            }  # fmt: skip
            found = talk.ask(LIMIT, **(words | {"budget": 60.0}))
            assert (found["made"], found["rejected"]) == (2, 0)


@pytest.mark.slow
def test_an_error_in_a_check_is_an_answer_and_the_process_goes_on():
    with with_peer("projection") as talk:
        talk.ask(LIMIT, do="import")
        found = talk.ask(LIMIT, do="check", workload="conv9d", seed=1)
        assert found == {"error": "KeyError: 'conv9d'"}
        assert talk.ask(LIMIT, do="check", workload="softmax", seed=1)["rejected"] == 0


@pytest.mark.slow
def test_every_element_costs_something_and_a_contracted_workload_is_right():
    with with_peer("full") as talk:
        talk.ask(LIMIT, do="import")
        assert talk.ask(LIMIT, do="floor", workload="softmax", seed=1)["cpu"] > 0
        assert talk.ask(LIMIT, do="scalar", workload="rms_norm", seed=1)["accepted"] is True


def test_a_package_that_is_not_there_is_named():
    peer = Peer(key="x", name="x", module="x", needs=("numpy", "no_such_package"))
    assert peer.absent == ("no_such_package",)
    assert not PEERS["model"].takes("softmax")


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("key", ["projection", "full"])
def test_ours_finds_one_element_that_is_one_per_cent_off(key):
    with with_peer(key) as talk:
        talk.ask(LIMIT, do="import")
        for workload in [w for w in WORKLOADS if w != "gpt"]:
            words = {"workload": workload, "seed": 4, "trials": 3, "budget": 60.0}
            found = talk.ask(LIMIT, do="count", **words, size=0.01)
            assert (workload, found) == (workload, found | {"made": 3, "rejected": 3})
