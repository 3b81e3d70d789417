"""MkDocs hooks: generated pages, navigation, links, figures."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "cases", ROOT / "docs"):  # the checkout's own code is documented
    sys.path.insert(0, str(folder))

from _pages import (  # noqa: E402  found through the path set above, as all below
    api,
    blocks,
    commands,
    config,
    curve,
    example,
    files,
    formats,
    models,
    operators,
    records,
    vocabulary,
)
from mkdocs.structure.files import File  # noqa: E402

MAKERS = (operators, models, commands, config, vocabulary, formats, api, example, files)
FIGURES = {
    "ordinary": curve.ordinary,
    "near_zero": curve.near_zero,
    "afar": curve.afar,
    "stairs": curve.stairs,
}
NAVIGATION = {
    "operators": operators.navigation,
    "models": lambda: models.navigation(models.MODELS),
    "rules": lambda: models.navigation(models.RULES),
    "commands": commands.navigation,
    "records": records.navigation,
}
BOOST = {
    "tutorial.md": 3.0,
    "guides/": 3.0,
    "reference/api.md": 0.1,
    "adr/": 0.001,
    "reports/": 0.001,
    "project/": 0.001,
    "files/": 0.001,
    "examples/": 0.001,
}
"""Factors of pages in search results, by path or folder; a match in a title counts 1,000 times."""
SECTION = re.compile(  # one with a page of its own has a label without text
    r'aria-labelledby="__nav_([\d_]+)_label"([^>]*>\s*<label class="md-nav__title" for="__nav_\1">'
    r'\s*<span class="md-nav__icon md-icon"></span>\s*)([^<]*[^<\s])'
)
FIGURE = re.compile(r"<!-- figure: (\w+) -->")
SESSION = re.compile(r"^<!-- (no )?session.*?-->\n", flags=re.MULTILINE)


def on_config(config: Any) -> Any:
    """Replace `made NAME` in the navigation by the generated pages."""
    config["nav"] = _filled(config["nav"])
    return config


def _filled(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _filled(value) for title, value in entry.items()}
    if isinstance(entry, list):
        return [_filled(one) for one in entry]
    if isinstance(entry, str) and entry.startswith("made "):
        return NAVIGATION[entry.removeprefix("made ")]()
    return entry


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages; a hand-written page of equal path takes precedence."""
    written = {file.src_uri for file in files}
    for maker in MAKERS:
        for path, body in maker.pages():
            if path not in written:
                files.append(File.generated(config, path, content=body))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links out of docs/ to pages of the site, insert figures, and rank for the search."""
    uri = page.file.src_uri
    for place, factor in BOOST.items():
        if uri.startswith(place):
            page.meta.setdefault("search", {}).setdefault("boost", factor)
    if page.file.generated_by is None:
        markdown = files.localised(markdown, f"docs/{uri}", uri)
    markdown = SESSION.sub("", markdown)
    return FIGURE.sub(lambda match: FIGURES[match[1]](), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Finish code blocks: copy buttons, and verdicts in colour."""
    return blocks.finished(html)


def on_post_page(output: str, **_: Any) -> str:
    """Name the search dialog and the parts of the navigation, for screen readers."""
    output = output.replace('role="dialog">', 'role="dialog" aria-label="Search">', 1)
    return SECTION.sub(r'aria-label="\3"\2\3', output)
