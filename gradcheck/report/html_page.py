"""What all HTML pages are made with: templates, and files of ours that stand in a page."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def templates() -> Environment:
    """The templates, which escape all foreign text, and know no name that they are not given."""
    # Not select_autoescape(): it looks at endings, and `.j2` is none that it knows.
    return Environment(
        loader=PackageLoader("gradcheck.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def asset(environment: Environment, name: str) -> Markup:
    """A file of ours, free of foreign text, to stand in the page as it is."""
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, name)
    return Markup(source)
