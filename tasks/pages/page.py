"""Self-contained pages and their parts (templates/page.html, parts.html). All text that a model wrote is escaped, and
the page loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tasks.core.labels import CURVES
from tasks.pages.render import Macros, render

PARTS = Macros("parts.html")

OUTCOME_COLOURS = {
    "right": "rl",
    "wrong": "sft",
    "malformed": "bad",
    "out_of_calls": "prefer",
    "truncated": "other",
    "unscorable": "base",
}
_TAG = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_MARKS = re.compile(r"^(<image>)+")
_PICTURE = re.compile(
    r"data:image/png;base64,[A-Za-z0-9+/]+=*"
)  # of tasks/storage/pictures.py; a page loads nothing else


def page(title: str, lead: str, facts: str, sections: Sequence[tuple[str, Markup]]) -> Markup:
    """The whole document from (heading, content) sections; title, lead and facts are plain text."""
    anchored = [(re.sub(r"\W+", "-", heading.lower()).strip("-"), heading, content) for heading, content in sections]
    return render("page.html", title=title, lead=lead, facts=facts, sections=anchored)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> Markup:
    """A table; a cell is text, or markup from a template. `numbers` are the columns aligned to the right."""
    return PARTS.table(head, list(rows), numbers)


def dotted(series: str, name: str) -> Markup:
    """A name with a dot of its colour before it."""
    return PARTS.dotted(series, name)


def bar(share: float) -> Markup:
    return PARTS.bar(min(max(share, 0), 1))


def stack(counts: Mapping[str, int]) -> Markup:
    """One bar of coloured parts, each with its name and share on hover."""
    total = sum(counts.values()) or 1
    return PARTS.stack([(OUTCOME_COLOURS.get(k, "other"), k, n / total) for k, n in counts.items() if n])


def tags(counts: Mapping[str, Any]) -> Markup:
    return PARTS.tags(counts)


def panels(columns: Sequence[str], draw: Callable[[str, str], Markup]) -> Markup:
    """One plot per column of a curve: the known columns in order, the others folded below. draw(column, label of its
    axis)."""

    def drawn(column: str) -> tuple[str, Markup]:
        name = column.replace("_", " ")
        return name, draw(column, CURVES.get(column) or name)

    return PARTS.plots([drawn(c) for c in CURVES if c in columns], [drawn(c) for c in columns if c not in CURVES])


def episode(e: Mapping[str, Any], *, shown: bool = False) -> Markup:
    """One conversation as bubbles below a line with question, model and outcome; `shown` unfolds it. A turn of one of
    several policies is headed by its role and the policy."""
    speakers = iter(e.get("speakers") or ())
    calls = (
        f"{e['calls']} search{'es' if e['calls'] != 1 else ''}"
        if e["env"] == "search"
        else e["family"].replace("_", " ")
    )
    return PARTS.episode(
        question=next((_asked(m) for m in e["messages"] if m["role"] == "user"), ""),
        calls=calls,
        model=e["model"],
        run=e["run"],
        good="right" if e["outcome"] == "right" else "other",
        outcome=e["outcome"].replace("_", " "),
        turns=[
            (_role(m["role"]), next(speakers, "assistant").removeprefix(": "), _parts(m), pictures(m))
            if m["role"] == "assistant"
            else (_role(m["role"]), m["role"], _parts(m), pictures(m))
            for m in e["messages"]
        ],
        forks={at: turn for at, turn in e.get("forks") or ()},
        answer=e["answer"],
        shown=shown,
    )


def _role(role: str) -> str:
    return role if role in ("user", "assistant", "tool", "system") else "tool"


def pictures(message: Mapping[str, Any]) -> list[str]:
    """The pictures of a message of an episode, as data URLs."""
    return [url for url in message.get("pictures", ()) if _PICTURE.fullmatch(url)]


def _asked(message: Mapping[str, Any]) -> str:
    """The text of a message. The marks of its first pictures are left out where the pictures stand before it."""
    text = message["content"]
    return _MARKS.sub("", text) if pictures(message) else text


def _parts(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A turn's text as (kind, text): in an assistant's turn, searches and answers are highlighted."""
    text = message["content"]
    if message["role"] != "assistant":
        return [("text", _asked(message))]
    parts, at = [], 0
    for tag in _TAG.finditer(text):
        parts += [("text", text[at : tag.start()]), (tag[1], tag[2])]
        at = tag.end()
    return [*parts, ("text", text[at:])]
