"""Entry points, read from their files: what `importlib.metadata` says of the same folders."""

import sys
import zipfile
from importlib import metadata
from importlib.machinery import PathFinder
from types import MappingProxyType

import pytest

from gradcheck.system.entry_points import entry_points

GROUP = "gradcheck.suites"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """`folders({"a/one-1.dist-info": text, …})`: packages, in folders that alone are searched."""

    def write(texts):
        for name, text in texts.items():
            place = tmp_path / name
            place.mkdir(parents=True)
            if text is not None:
                (place / "entry_points.txt").write_text(text)
            (place / "METADATA").write_text("Metadata-Version: 2.1\n")
        paths = [tmp_path / name.partition("/")[0] for name in texts]
        monkeypatch.setattr(sys, "path", [*dict.fromkeys(map(str, paths)), str(tmp_path / "none")])
        # What other tests have imported may look for packages in the place of Python's own finder.
        python = [f for f in sys.meta_path if getattr(f, "__module__", "").startswith("_frozen")]
        monkeypatch.setattr(sys, "meta_path", python)
        own = staticmethod(metadata.MetadataPathFinder.find_distributions)
        monkeypatch.setattr(PathFinder, "find_distributions", own, raising=False)
        return tmp_path

    return write


def usual(group):
    return {point.name: point.value for point in metadata.entry_points(group=group)}


def never(*arguments, **options):
    raise AssertionError("importlib.metadata was asked")


def offer(*lines, group=GROUP):
    return "\n".join([f"[{group}]", *lines, ""])


TEXTS = [
    {},
    {"a/one-1.0.dist-info": None},
    {"a/one-1.0.dist-info": ""},
    {"a/one-1.0.dist-info": offer("mine = one:SUITE")},
    {
        "a/one-1.0.dist-info": offer(
            "mine=one:SUITE", " second  =  one.two:A.B ", "", "# no = one:C"
        )
    },
    {"a/one-1.0.dist-info": offer("mine = one:SUITE", group="others") + offer("b = one:B")},
    {"a/one-1.0.dist-info": offer("b = one:B") + offer("mine = one:SUITE", group="others")},
    {"a/one-1.0.dist-info": offer("b = one:B"), "a/two-1.0.egg-info": offer("c = two:C")},
    {"a/one-1.0.dist-info": offer("b = old:B"), "b/one-2.0.dist-info": offer("b = new:B")},
    {"a/One.x-1.dist-info": offer("b = old:B"), "b/one_X-2.dist-info": offer("c = new:B")},
    {"a/one-1.0.dist-info": None, "b/one-2.0.dist-info": offer("hidden = new:B")},
    {"a/one-1.0.dist-info": offer("b = one:B"), "b/two-2.0.dist-info": offer("b = two:B")},
    {"a/one-1.0.info": offer("b = one:B")},
]


@pytest.mark.parametrize("texts", TEXTS)
def test_the_same_is_found_without_what_is_heavy(folders, monkeypatch, texts):
    folders(texts)
    wanted = usual(GROUP)
    monkeypatch.setattr(metadata, "entry_points", never)
    assert entry_points(GROUP) == wanted


def test_the_folders_above_are_found_in_at_all(folders):
    folders(TEXTS[7])
    assert entry_points(GROUP) == {"b": "one:B", "c": "two:C"}
    assert entry_points("others") == {}


@pytest.mark.parametrize("group", ["console_scripts", "pytest11", GROUP])
def test_the_same_is_found_here(group):
    assert entry_points(group) == usual(group)


def test_an_archive_is_left_to_who_can_read_it(folders, monkeypatch):
    place = folders({"a/one-1.0.dist-info": offer("b = one:B")}) / "packed.zip"
    with zipfile.ZipFile(place, "w") as packed:
        packed.writestr("two-1.0.dist-info/entry_points.txt", offer("c = two:C"))
        packed.writestr("two-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: two\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(place)])
    assert entry_points(GROUP) == {"b": "one:B", "c": "two:C"}


def test_a_finder_of_somebody_else_is_heard(folders, monkeypatch):
    folders({"a/one-1.0.dist-info": offer("b = one:B")})

    class Hidden(metadata.Distribution):
        metadata = MappingProxyType({"Name": "hidden"})

        def read_text(self, filename):
            return offer("d = hidden:D") if filename == "entry_points.txt" else None

        def locate_file(self, path):
            return path

    class Finder(metadata.DistributionFinder):
        def find_distributions(self, context=None):
            return iter([Hidden()])

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert entry_points(GROUP) == {"b": "one:B", "d": "hidden:D"}
