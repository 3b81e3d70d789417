"""What must be the same on every machine: a difference of one byte of code is one."""

import sys
from importlib.metadata import PackageNotFoundError

from gradcheck.run.cluster.process import difference, identity


def test_this_process_is_what_it_is():
    here = identity(["gradcheck_cases:SUITE"])
    assert here["Python"] == ".".join(map(str, sys.version_info[:2]))
    assert [*here] == ["Python", "system", "NumPy", "gradcheck", "suite gradcheck_cases:SUITE"]
    assert difference(here, identity(["gradcheck_cases:SUITE"])) == ""


def test_frameworks_count_where_they_judge(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = {"torch": "2.1+cpu", "jax": "0.4.1", "jaxlib": "0.4.0"}
    for name, version in installed.items():
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(text)
    neither = identity([], ["reference", "mine:torch"])
    assert neither == identity([])
    both = identity([], ["torch", "jax"])
    assert {name: both[name] for name in both.keys() - neither.keys()} == {
        "PyTorch": "2.1+cpu", "JAX": "0.4.1", "jaxlib": "0.4.0",
    }  # fmt: skip
    other = {**both, "PyTorch": "2.1+cu121"}
    assert difference(both, other) == "PyTorch 2.1+cu121, not 2.1+cpu as here"


def test_a_framework_that_is_not_there_is_missing(monkeypatch):
    def absent(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr("gradcheck.run.cluster.process.version", absent)
    assert identity([], ["torch"])["PyTorch"] == "missing"


def test_every_difference_is_named():
    here, there = {"Python": "3.11", "NumPy": "2.0"}, {"Python": "3.12"}
    assert (
        difference(here, there) == "Python 3.12, not 3.11 as here; NumPy missing, not 2.0 as here"
    )


def test_code_of_a_suite_counts_wherever_it_lies(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "alone.py").write_text("SUITE = 1\n")
    seen = [identity(["mine.deep:SUITE", "alone:SUITE", "nowhere:SUITE"])]
    (tmp_path / "mine" / "deep.py").write_text("SUITE = 1\n")
    seen.append(identity(["mine.deep:SUITE", "alone:SUITE"]))
    (tmp_path / "alone.py").write_text("SUITE = 2\n")
    seen.append(identity(["mine.deep:SUITE", "alone:SUITE"]))
    assert seen[0]["suite nowhere:SUITE"] == "of files missing"
    package, module = (
        [s[f"suite {ref}"] for s in seen] for ref in ("mine.deep:SUITE", "alone:SUITE")
    )
    assert package[0] != package[1] == package[2]
    assert module[0] == module[1] != module[2]
