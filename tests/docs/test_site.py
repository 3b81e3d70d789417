"""The documentation site: built strictly, complete, whole, and without a request to anybody."""

from __future__ import annotations

import argparse
import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.faults import FAULTS
from gradcheck_cases.mutants.optimizer import RULE_MUTANTS

import gradcheck
from gradcheck import report
from gradcheck.cli import exit_codes, main
from gradcheck.cli.parser import EXAMPLES, FIRST_STEPS
from gradcheck.cli.project_defaults import project_keys
from gradcheck.judge.contract_check import PROPERTIES
from gradcheck.judge.impostors import IMPOSTORS
from gradcheck.results.verdict import Breach, Known, Verdict
from gradcheck.spec.defect import LABELS
from gradcheck.spec.mutant import mutants_of

pytestmark = pytest.mark.slow

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "audio": "src",
         "video": "src", "embed": "src", "object": "data"}  # fmt: skip
"""What a browser fetches by itself, and the attribute that says where."""
SCHEMA = json.loads(Path(gradcheck.__file__).with_name("results").joinpath(
    "stored/schemas/log-1.json").read_text("utf-8"))  # fmt: skip
STORED = [field for part in SCHEMA["$defs"].values() for field in part.get("properties", ())]
"""The fields of a stored run."""
BY_OP = mutants_of(SUITE)
RELATIONS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "modulepreload"}


@dataclass
class Page(HTMLParser):
    """One page: its text, its links, its anchors, and what it makes a browser fetch."""

    words: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if found.get("id"):
            self.anchors.add(found["id"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "link" and set((found.get("rel") or "").split()) & RELATIONS:
            self.loads.append(found.get("href") or "")
        if tag in LOADS and found.get(LOADS[tag]):
            self.loads.append(found[LOADS[tag]])
        self.loads += re.findall(r"url\(['\"]?([^'\")]+)", found.get("style") or "")

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@cache
def page(path: Path) -> Page:
    found = Page()
    found.feed(path.read_text(encoding="utf-8"))
    return found


def pages(site: Path) -> Iterator[Path]:
    return site.rglob("*.html")


def missing(site: Path, name: str, words) -> list[str]:
    """Those of `words` that a page does not hold."""
    text = page(site / name).text
    return [word for word in words if " ".join(word.split()) not in text]


def test_every_operator_has_a_page_with_all_that_its_spec_says(site):
    for spec in SUITE:
        words = [
            *(s.name for s in spec.samples),
            *(s.hunts.replace("`", "") for s in spec.samples),
            *(d.name for d in spec.dialects if len(spec.dialects) > 1),
            *(k.name for k in spec.kinks),
            *(s for k in spec.kinks for c in k.conventions for s in c.systems),
            *spec.primals,
            *spec.defaults,
            *(m.name for m in BY_OP[spec.name]),
            spec.source,
        ]
        name = f"reference/operators/{spec.family}/{spec.name}.html"
        assert not missing(site, name, words), spec.name
        assert "<math" in (site / name).read_text(encoding="utf-8")


def test_every_model_and_every_update_rule_has_a_page(site):
    for model in SUITE.models.values():
        program = model.build()
        words = [
            *program.params,
            *(s.name for s in program.stages),
            *(s.hunts for s in model.sizes),
            *(f.name for f in FAULTS if f.model == model.name),
        ]
        assert not missing(site, f"reference/models/{model.name}.html", words), model.name
    for rule in SUITE.rules.values():
        words = [
            *(s.hunts for s in rule.samples),
            *rule.defaults,
            *(m.name for m in RULE_MUTANTS if m.rule == rule.name),
        ]
        assert not missing(site, f"reference/rules/{rule.name}.html", words), rule.name


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, list[str]]]:
    """Each command with its flags and arguments, found without the code that makes the pages."""
    flags = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from commands(below, f"{name} {word}".strip())
        else:
            flags += action.option_strings or [str(action.metavar or action.dest)]
    yield name, flags


def test_every_command_and_every_flag_is_in_the_reference(site):
    found = dict(commands(main._parser()))
    assert len(found) > 10
    for name, flags in found.items():
        word = name.split()[0] if name else "index"
        shown = EXAMPLES.get(name, ()) if name else FIRST_STEPS
        words = [f"gradcheck {name}".strip(), *flags, *(line for line, _ in shown)]
        assert not missing(site, f"reference/commands/{word}.html", words), name


def test_every_public_name_has_a_section(site):
    api = page(site / "reference/api.html")
    for name in gradcheck.__all__:
        assert f"{gradcheck._HOME[name]}.{name}" in api.anchors, name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "verdicts",
            [*(v.value.upper() for v in Verdict), *Known, *(b.value.upper() for b in Breach)],
        ),
        ("defects", [w for code, label in LABELS.items() for w in (code, label.word, label.says)]),
        ("contract", [w for one in PROPERTIES for w in (one.name, one.says)]),
        ("impostors", [w for one in IMPOSTORS for w in (one.name, one.says)]),
        ("reports", [*report.FORMATS, *STORED]),
        ("config", [*project_keys()]),
        ("bounds", ["float64", "float32", "float16", "bfloat16"]),
        (
            "commands/index",
            [
                str(code)
                for word, code in vars(exit_codes).items()
                if word.isupper() and type(code) is int  # not TYPE_CHECKING
            ],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reference_has_every_word_that_reports_use(site, name, words):
    assert words
    assert not missing(site, f"reference/{name}.html", words)


def test_every_design_record_is_in_the_navigation(site):
    records = sorted((site.parent / "site" / "adr").glob("0*.html"))
    assert len(records) >= 24
    links = {posixpath.basename(link) for link in page(site / "adr/index.html").links}
    assert {record.name for record in records} <= links


def broken(site: Path) -> list[str]:
    """Links of a site that lead nowhere."""
    found = []
    for path in pages(site):
        if path.name == "404.html":  # a server shows it at any depth: its links start at the root
            continue
        for link in dict.fromkeys(page(path).links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if target.is_dir():
                target /= "index.html"
            here = f"{path.relative_to(site)}: {link}"
            if not target.is_file():
                found.append(here)
            elif parts.fragment and target.suffix == ".html":
                anchor = unquote(parts.fragment)
                if anchor not in page(target).anchors and not anchor.startswith("__"):
                    found.append(here)
    return found


def fetched(site: Path) -> list[str]:
    """What pages and style sheets would fetch from elsewhere."""
    found = []
    for path in pages(site):
        found += [f"{path.name}: {one}" for one in page(path).loads if _outside(one)]
    for path in site.rglob("*.css"):
        css = path.read_text(encoding="utf-8")
        urls = re.findall(r"(?:url\(\s*['\"]?|@import\s+['\"])([^'\")]+)", css)
        found += [f"{path.name}: {one}" for one in urls if _outside(one)]
    return found


def _outside(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in ("http", "https")


def test_no_link_is_dead(site):
    assert broken(site.resolve()) == []


def test_nothing_is_fetched_from_elsewhere(site):
    assert sum(1 for _ in pages(site)) > 200
    assert fetched(site) == []


def test_no_page_asks_the_theme_for_what_it_would_fetch(site):
    """Its script fetches mermaid where a page has a diagram, and a shim where one is missing."""
    for path in pages(site):
        text = path.read_text(encoding="utf-8")
        assert 'class="mermaid"' not in text, path.name
        assert "unpkg.com" not in text, path.name


def test_a_dead_link_and_an_outside_font_are_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html">b</a><a href="a.html#x">x</a><a href="a.html#y">y</a><p id="y">'
        '<link rel="stylesheet" href="https://fonts.example/css"><script src="//cdn.example/a.js">'
        "</script>",
        encoding="utf-8",
    )
    (tmp_path / "a.css").write_text(
        "@import 'https://a.example/b.css'; a { background: url(x.png) }"
    )
    assert broken(tmp_path.resolve()) == ["a.html: b.html", "a.html: a.html#x"]
    assert fetched(tmp_path) == [
        "a.html: https://fonts.example/css",
        "a.html: //cdn.example/a.js",
        "a.css: https://a.example/b.css",
    ]


def test_no_page_is_empty_or_has_two_titles(site):
    for path in pages(site):
        html = path.read_text(encoding="utf-8")
        assert html.count("<h1") == 1, path.name
        assert len(page(path).text) > 300, path.name
