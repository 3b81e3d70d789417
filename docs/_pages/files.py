"""Pages of repository files that other pages link to: Markdown as pages, code as pages of code.

Links in Markdown are written for readers of the repository; here they are rewritten to the site's
pages of the same files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from _pages.text import block, front, joined

ROOT: Final = Path(__file__).resolve().parents[2]
LINK: Final = re.compile(r"\[([^\[\]]*(?:\[[^\[\]]*\])?[^\[\]]*)\]\(([^()#\s]+)(#[^()\s]*)?\)")
FENCE: Final = re.compile(r"^(```+|~~~+).*?^\1\s*$", flags=re.MULTILINE | re.DOTALL)
NAMED: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "cases/README.md": "guides/operator.md",
    "action/README.md": "guides/github.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Markdown outside docs/ that is a page; README.md is not shown, but links to it lead home."""
LANGUAGES: Final = {
    ".py": "python", ".c": "c", ".h": "c", ".go": "go", ".rs": "rust", ".js": "javascript",
    ".toml": "toml", ".sh": "sh", ".yml": "yaml", ".json": "json", "": "make",
}  # fmt: skip


@cache
def homes() -> Mapping[str, str]:
    """The page of each Markdown file outside docs/, by its path in the repository."""
    found = {path: page for path, page in NAMED.items() if (ROOT / path).exists()}
    for path in sorted((ROOT / "reports").glob("*.md")):
        name = "index.md" if path.name == "README.md" else path.name
        found[f"reports/{path.name}"] = f"reports/{name}"
    for path in sorted((ROOT / "examples").rglob("README.md")):
        folder = path.parent.relative_to(ROOT).as_posix()
        found[f"{folder}/README.md"] = f"{folder}/index.md"
    return found


def pages() -> Iterator[tuple[str, str]]:
    """Each page's path and Markdown."""
    code: dict[str, str] = {}
    for path, page in homes().items():
        if page != "index.md":
            body = localised((ROOT / path).read_text(encoding="utf-8"), path, page, code)
            yield page, _report(body) if path.startswith("reports/") else body
    for source in sorted((ROOT / "docs").rglob("*.md")):
        inside = source.relative_to(ROOT / "docs").as_posix()
        localised(source.read_text(encoding="utf-8"), f"docs/{inside}", inside, code)
    for path, page in sorted(code.items()):
        yield page, _code(path)


def localised(markdown: str, path: str, page: str, code: dict[str, str] | None = None) -> str:
    """Markdown of the file `path`, with its links turned to pages, as they are from `page`.

    Code that it links to is entered into `code`, file by page.
    """

    def turned(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        home = _home(file, code)
        if home is None:
            return words if (ROOT / file).exists() else match[0]
        return f"[{words}]({posixpath.relpath(home, posixpath.dirname(page) or '.')}{anchor})"

    parts = []
    start = 0
    for fence in FENCE.finditer(markdown):  # what stands in a block of code is no link
        parts += [LINK.sub(turned, markdown[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*parts, LINK.sub(turned, markdown[start:])])


def _home(file: str, code: dict[str, str] | None) -> str | None:
    """The page of a file of the repository; None: it has none."""
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    if (ROOT / file).is_dir():
        file = f"{file}/README.md"
    if file in homes():
        return homes()[file]
    known = Path(file).suffix in LANGUAGES and (ROOT / file).is_file()
    if not known:
        return None
    page = f"files/{file}.md"
    if code is not None:
        code[file] = page
    return page


def _report(body: str) -> str:
    """A committed report: data, which a search need not find, with Markdown in its details."""
    unfolding = body.replace("<details>", "<details markdown>")
    return f"---\nsearch:\n  exclude: true\n---\n\n{unfolding}"


def _code(path: str) -> str:
    body = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES[Path(path).suffix]
    return joined(
        front(path, f"The file {path}"), f"# {Path(path).name}", block(language, body, title=path)
    )
