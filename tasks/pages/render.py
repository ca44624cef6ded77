"""HTML and SVG by the templates in `templates/`: jinja2 escapes every value, after `harmless` (tasks/core/text.py).

A string is text. Only a template makes markup: nothing outside `templates/` writes a tag.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.core.text import harmless, words


def render(template: str, **values: Any) -> Markup:
    """Renders a whole template: a page or a plot."""
    return Markup(environment().get_template(template).render(values))


class Macros:
    """The macros of a template as functions that return Markup."""

    def __init__(self, template: str) -> None:
        self._template = template

    def __getattr__(self, name: str) -> Any:
        return getattr(environment().get_template(self._template).module, name)


@cache
def environment() -> Environment:
    jinja = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters["spec"] = format  # {{ share|spec(".1%") }}
    jinja.filters["words"] = words
    return jinja


def _shown(value: Any) -> Any:
    """The text that replaces `{{ value }}`, before it is escaped."""
    return value if isinstance(value, Markup) else harmless(str(value))
