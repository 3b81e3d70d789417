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

from gradcheck.results.verdict import Known, Verdict  # noqa: E402

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
FIGURE = re.compile(r"<!-- figure: (\w+) -->")
SHOWN = re.compile(r'(?<=<span class="go">)[^<]*(?=</span>)')
VERDICT = re.compile(r"\b(" + "|".join(word.upper() for word in [*Verdict, *Known]) + r")\b")
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
    """Rewrite links out of docs/ to pages of the site, and insert figures."""
    uri = page.file.src_uri
    if page.file.generated_by is None:
        markdown = files.localised(markdown, f"docs/{uri}", uri)
    markdown = SESSION.sub("", markdown)
    return FIGURE.sub(lambda match: FIGURES[match[1]](), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Colour the verdicts in command output, as a terminal does."""

    def marked(match: re.Match[str]) -> str:
        return f'<span class="says {match[1].lower()}">{match[1]}</span>'

    return SHOWN.sub(lambda match: VERDICT.sub(marked, match[0]), html)
