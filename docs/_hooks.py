"""What MkDocs asks of us while it builds: pages made of the code, navigation, links, figures."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "cases", ROOT / "docs"):  # the checkout's own code is documented
    sys.path.insert(0, str(folder))

from _pages import (  # noqa: E402
    api,
    commands,
    curve,
    files,
    formats,
    models,
    operators,
    records,
    vocabulary,
)
from mkdocs.structure.files import File  # noqa: E402

MAKERS = (operators, models, commands, vocabulary, formats, api, files)
FIGURES = {"ordinary": curve.ordinary, "near_zero": curve.near_zero}
NAVIGATION = {
    "operators": operators.navigation,
    "models": lambda: models.navigation(models.MODELS),
    "rules": lambda: models.navigation(models.RULES),
    "commands": commands.navigation,
    "records": records.navigation,
}
FIGURE = re.compile(r"<!-- figure: (\w+) -->")
SESSION = re.compile(r"^<!-- (no )?session.*?-->\n", flags=re.MULTILINE)


def on_config(config: Any) -> Any:
    """Fill `made: NAME` in the navigation with the pages that are made."""
    config["nav"] = [_filled(entry) for entry in config["nav"]]
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
    """Add the pages that are made; a page that is written by hand goes before them."""
    written = {file.src_uri for file in files}
    for maker in MAKERS:
        for path, body in maker.pages():
            if path not in written:
                files.append(File.generated(config, path, content=body))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links out of docs/ to pages of the site, and put figures in their places."""
    from _pages.files import localised

    uri = page.file.src_uri
    if page.file.generated_by is None:
        markdown = localised(markdown, f"docs/{uri}", page.file.src_uri)
    markdown = SESSION.sub("", markdown)
    return FIGURE.sub(lambda match: FIGURES[match[1]](), markdown)
