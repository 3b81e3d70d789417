"""What is read back has a limit."""

import pytest

from gradcheck.errors import UsageError
from gradcheck.results.stored.read import read


def test_a_report_of_more_than_8_gib_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "run.json"
    with path.open("wb") as stream:
        stream.truncate((8 << 30) + 1)  # a hole, which takes no room on the disk
    with pytest.raises(UsageError, match=r"run\.json: it is too large: at most 8,192 MiB are read"):
        read(path)
