"""Where a cluster is: addresses that are none are refused before anything is waited for."""

import pytest

from gradcheck.errors import UsageError
from gradcheck.run.cluster.client import address_of


@pytest.mark.parametrize("word", ["head", "http://head:8786", "tcp://head", "head:port", "a b:1"])
def test_no_address(word):
    with pytest.raises(UsageError, match="no address; write tcp://HOST:PORT"):
        address_of(word)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory; is the scheduler running"), ("[]", "not what `dask"),
     ("{}", "not what `dask"), ("{", "not what `dask"), ('{"address": "x"}', "no address")],
)  # fmt: skip
def test_no_file_of_a_scheduler(tmp_path, content, why):
    path = tmp_path / "s.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=why):
        address_of(str(path))


def test_an_address_in_a_file(tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"address": "tls://10.0.0.1:8786"}')
    assert address_of(str(path)) == "tls://10.0.0.1:8786"
