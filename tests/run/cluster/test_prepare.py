"""Before the first case: what becomes of workers that cannot judge, or are lost while they load."""

import pytest

from gradcheck.errors import UsageError
from gradcheck.run.cluster import client as cluster_client
from gradcheck.run.cluster import dask_worker
from gradcheck.run.cluster.scheduler import ClusterLostError

pytest.importorskip("distributed")

LOST = ConnectionResetError("in <TCP (closed)>: Stream is closed")
POOR = dask_worker.ProcessLostError(
    "on there: SIGKILL while it loaded the run, in 2 tries", "tcp://x"
)
UNFIT = dask_worker.UnfitError("on there: NumPy 1.0, not 2.0 as here")


class Client:
    """A client whose workers say, one round after the other, what a test wants."""

    def __init__(self, *rounds):
        self.rounds, self.asked = [*rounds], 0

    def run(self, function, order, on_error):
        assert (function, on_error) == (dask_worker.prepare, "return")
        self.asked += 1
        said = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        if isinstance(said, Exception):
            raise said
        return said


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(cluster_client, "RETRY_INTERVAL", 0)


def prepared(*rounds):
    """How often the workers were asked until all was well."""
    client = Client(*rounds)
    cluster_client._prepare(client, {}, "the cluster")
    return client.asked


def test_those_that_live_go_on():
    assert prepared({"a": None}) == 1
    assert prepared({"a": LOST, "b": None, "c": POOR}) == 1


@pytest.mark.parametrize("before", [{"a": LOST}, {}, {"a": LOST, "b": POOR}])
def test_where_none_lives_the_next_is_waited_for(before):
    assert prepared(before, {}, {}, before, {"c": None}) == 5


def test_what_lacks_something_is_refused_whoever_else_is_lost_or_fine():
    said = {"a": LOST, "b": UNFIT, "c": None, "d": POOR}
    with pytest.raises(UsageError) as raised:
        prepared(said)
    assert str(raised.value) == (
        "the worker at b (and 2 more) cannot judge this: on there: NumPy 1.0, not 2.0 as here; it "
        "needs the same there as here, at the same path"
    )


def test_another_gradcheck_is_refused():
    with pytest.raises(UsageError, match="AttributeError: no prepare; install the same gradcheck"):
        prepared({"a": AttributeError("no prepare")})


def test_where_nothing_lives_on_any_of_them_it_is_said():
    with pytest.raises(UsageError, match=r"a .and 1 more. cannot judge this: on there"):
        prepared({"a": POOR, "b": POOR})


def test_one_worker_after_the_other_is_too_many():
    with pytest.raises(
        ClusterLostError, match="the cluster lost one worker after the other while they load"
    ):
        prepared(
            *({str(n): LOST} for n in range(cluster_client.MAX_LOADING_LOSSES + 1)), {"c": None}
        )
    assert (
        prepared(*({str(n): LOST} for n in range(cluster_client.MAX_LOADING_LOSSES)), {"c": None})
        == cluster_client.MAX_LOADING_LOSSES + 1
    )


def test_no_worker_is_waited_for_but_not_for_ever(monkeypatch):
    monkeypatch.setattr(cluster_client, "MAX_IDLE", 0.01)
    with pytest.raises(ClusterLostError, match=r"the cluster has had no workers for 0.01 s"):
        prepared({"a": LOST}, {})
    with pytest.raises(ClusterLostError, match=r"the cluster has had no workers for 0.01 s"):
        prepared({"a": LOST})  # which the scheduler never finds out


def test_a_scheduler_that_is_lost_is_said():
    with pytest.raises(ClusterLostError, match="the connection to the cluster was lost"):
        prepared(ConnectionResetError("closed"))
