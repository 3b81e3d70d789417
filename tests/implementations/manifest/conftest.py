import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.manifest.read import read

HEAD = """schema = 1
[impl]
name = "kernels"
[c]
library = "build/libk.so"
"""


@pytest.fixture
def manifest(tmp_path):
    """Reads the text of a manifest, [impl] and [c] before it unless `head` says otherwise."""

    def write_and_read(text, head=HEAD):
        path = tmp_path / "gradcheck.toml"
        path.write_text(head + text)
        return read(path, SUITE)

    return write_and_read


@pytest.fixture
def operation(manifest):
    """The one operation of a manifest with one `[[op]]`."""

    def one(text, head=HEAD):
        (found,) = manifest(text, head).operations.values()
        return found

    return one
