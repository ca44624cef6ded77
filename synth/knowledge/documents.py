"""Documents: pages of Markdown, plain text, HTML, JSON, PDF or Word, read into a title, plain text, links and aliases. No model,
no network.

What a document says is data. Scripts, styles, hidden elements and comments are dropped; text that looks like an
instruction or like chat markup stays in place, and is made harmless when it is shown to a model (`harmless`).

Bytes are decoded as their byte order mark, their <meta charset>, or UTF-8 says; what is none of these is read as
Windows-1252, which knows (almost) every byte, and the document says so in `encoding`.
"""

from __future__ import annotations

import codecs
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from synth.knowledge import office
from synth.knowledge.text import tidy
from synth.quantities import without_note

SUFFIXES = (".md", ".markdown", ".txt", ".html", ".htm", ".json", ".pdf", ".docx")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_CHARSET = re.compile(rb"<meta[^<>]{0,200}charset\s*=\s*[\"']?([\w-]{2,20})", re.IGNORECASE)
_DROPPED = {"script", "style", "noscript", "template", "svg", "iframe", "object", "nav", "form", "button", "select"}
_SIDES = {
    "total",
    "male",
    "female",
    "land",
    "water",
    "urban",
    "rural",
}  # words that come before the noun they qualify: "total area"
_TEMPLATE = re.compile(r"\{\{|\{%|<%|\$\{")
_LAYOUT = {  # keys of front matter that describe the page, not its subject
    *("layout", "weight", "draft", "slug", "permalink", "url", "date", "lastmod", "updated", "tags", "categories"),
    *("author", "authors", "description", "template", "toc", "menu", "nav_order", "parent", "has_children", "hide"),
    *("sidebar", "sidebar_position", "sidebar_label", "keywords", "image", "status", "comments", "published", "order"),
}
_HEADS = {"value", "values", "description", "meaning", "type", "default", "details", "notes", "explanation", "example"}
_NONE = {"", "none", "na", "n/a", "-"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
_BLOCK = {"p", "div", "br", "li", "tr", "table", "section", "article", "dl", "dd", "blockquote", "pre", "ul", "ol"} | {
    f"h{n}" for n in range(1, 7)
}
_LINK = re.compile(
    r"\[\[([^\[\]|\n]{1,200})(?:\|([^\[\]\n]{1,200}))?\]\]"
    r"|(?<!!)\[([^\[\]\n]{1,200})\]\(([^()\s]{1,300})(?:\s+\"[^\"\n]{0,200}\")?\)"
)
_IMAGE = re.compile(r"!\[[^\[\]\n]{0,200}\]\([^()\n]{0,300}\)")
_EMPHASIS = re.compile(r"(\*\*|__|\*|`)(?=\S)([^*`\n]{1,200}?)(?<=\S)\1")
_BOLD = re.compile(r"(?:\*\*|__)(?=\S)([^*_\n]{1,100}?)(?<=\S)(?:\*\*|__)")
_PIPES = re.compile(r"\|([^|\n]{1,80})\|([^|\n]{1,400})\|\s*")
_MARKUP = re.compile(
    r"<(?=[|/!?A-Za-z])|\[(?=/?(?:INST|SYS|system|assistant|user|tool)\b)"
    r"|(?m:^)(?=[ \t]{0,8}(?:#{1,6}[ \t]*)?(?:system|assistant|user|human)[ \t]{0,8}:)",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Document:
    """id: the path below the source, with "#3" for the third of a file; text: plain, lines kept; links: (target title,
    start, end) in `text`; aliases: other names that the page states; facts: (key, value) of its front matter; type: ""
    if not stated; quiet: the spans [start, end) of `text` that are searchable but from which no fact is read (code,
    templates, table headers)."""

    id: str
    title: str
    text: str
    aliases: tuple[str, ...] = ()
    links: tuple[tuple[str, int, int], ...] = ()
    type: str = ""
    encoding: str = "utf-8"
    quiet: tuple[tuple[int, int], ...] = ()


def harmless(text: str) -> str:
    """Text of a document as an observation: anything that could pass for chat markup or for the markup of our own turns
    is broken up by spaces.

    `<|im_end|>`, `</answer>`, `<search>` become `< |im_end|>`, `< /answer>`, `< search>`; `[INST]` becomes `[ INST]`; a
    line that begins `system:` gets a `> ` before it. Words are never changed, so that searches still match.
    """
    return _MARKUP.sub(lambda m: m[0] + " " if m[0] else "> ", text)


def decode(data: bytes) -> tuple[str, str]:
    """(text, encoding). Raises ValueError for binary data: a NUL byte that no byte order mark explains."""
    names = [name for mark, name in _MARKS if data.startswith(mark)]
    if not names:
        if b"\0" in data:
            raise ValueError(f"it holds a NUL byte at offset {data.index(0)}: that is no text")
        declared = _CHARSET.search(data[:4096])
        names = ["utf-8", *([declared[1].decode("ascii")] if declared else [])]
    for name in names:
        try:
            return data.decode(name), name
        except (UnicodeDecodeError, LookupError):  # a wrong label, or an encoding that Python does not know
            continue
    return data.decode("cp1252", errors="replace"), "cp1252"


def read_document(path: Path, name: str, *, titles: Sequence[str] = ("title",)) -> Iterator[Document]:
    """The documents of one file. `titles`: paths of the title in a JSON object, keys joined by dots
    ("Government.Country name.text"); the first that is there and not "none" stands, without a remark in brackets.

    Raises ValueError if the file is not text or not valid JSON, is damaged, or has no text at all.
    """
    suffix = path.suffix.lower()
    page: _Parts | _Page
    if suffix in (".pdf", ".docx"):
        encoding = suffix[1:]
        title, text = (office.pdf if suffix == ".pdf" else office.docx)(path, "it")
        page = _plain(text)
        page.title = title or page.title
    else:
        raw, encoding = decode(path.read_bytes())
        if suffix == ".json":
            yield from _json(raw, name, path.stem, titles, encoding)
            return
        html_ = suffix in (".html", ".htm")
        page = _Page(raw) if html_ else _markdown(raw) if suffix in (".md", ".markdown") else _plain(raw)
    if not page.text.strip():
        raise ValueError("it holds no text" + (": scanned pages need OCR first" if suffix == ".pdf" else ""))
    title = tidy(page.title) or path.stem.replace("_", " ")
    aliases, links = tuple(page.aliases), tuple(page.links)
    yield Document(
        id=name,
        title=title,
        text=page.text,
        aliases=aliases,
        links=links,
        type=page.type,
        encoding=encoding,
        quiet=tuple(page.quiet),
    )


# ---- one reader per format; each gives title, text, aliases, links, type


@dataclass
class _Parts:
    text: str = ""
    title: str = ""
    aliases: list[str] = field(default_factory=list)
    links: list[tuple[str, int, int]] = field(default_factory=list)
    type: str = ""
    quiet: list[tuple[int, int]] = field(default_factory=list)


def _plain(raw: str) -> _Parts:
    text = raw.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    first, second = [*(line.strip() for line in text.split("\n", 2)[:2]), ""][:2]
    key, _, value = first.partition(": ")
    if key.lower() == "title" and value:
        first = value.strip()
    elif value and (": " in second or "\n" not in text):  # keys; a title with a colon is followed by something else
        first = ""
    return _Parts(text=text, title=first if 0 < len(first) <= 80 and first[-1] not in ".:;,!?" else "")


def _front(text: str) -> tuple[_Parts, list[str], str]:
    """(title, type and other names of the front matter, its other keys as lines, the text after it)."""
    parts, lines = _Parts(), []
    front = re.match(r"---\n(.{0,4000}?)\n---\n", text, re.DOTALL)
    if front:
        text = text[front.end() :]
        for key, _, value in (line.partition(":") for line in front[1].split("\n")):
            key, value = key.strip().lower(), value.strip().strip("\"'")
            if key == "title":
                parts.title = value
            elif key == "type":
                parts.type = tidy(value)
            elif key == "aliases":
                parts.aliases += [a.strip(" \"'") for a in value.strip("[]").split(",") if a.strip(" \"'")]
            elif key and value and key not in _LAYOUT:
                lines.append(f"{key}: {value}")
    return parts, lines, text


def _markdown(raw: str) -> _Parts:
    text = raw.replace("\r\n", "\n").replace("\r", "\n")
    parts, lines, text = _front(text)
    at, begun, fenced = sum(len(line) + 1 for line in lines), False, False
    begun_row = 0  # number of the line that the row above became
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if fenced or _TEMPLATE.search(line[:2000]) or "`" in line[:400].partition(":")[0]:
            parts.quiet.append((at, at + len(line)))
        heading = re.match(r"#{1,6}\s+(.+?)\s*#*$", line) if len(line) < 400 else None
        if heading:
            line = heading[1]
            if not parts.title:
                parts.title = _unlinked(line)
                continue
        row = _PIPES.fullmatch(line.strip()) if len(line) < 500 else None
        if row and not fenced:
            key, value = row[1].strip(), row[2].strip()
            if not set(key) - set("-: "):
                above = lines[-1].partition(": ")[2].lower() if begun_row == len(lines) > 0 else ""
                if above in _HEADS:  # the row above is the table header, and not the first row of an infobox
                    parts.quiet.append((at - len(lines[-1]) - 1, at))
                continue
            begun_row = len(lines) + 1
            line = f"{key.strip('*')}: {value}"
        if not begun and line.strip() and not heading and not row:
            begun = True
            parts.aliases += _BOLD.findall(line[:2000])
        if not fenced:
            line = re.sub(r"^\s{0,8}(?:[-*+]|\d{1,3}\.)\s+", "", line)
            line, links = _links(line)
            parts.links += [(target, at + a, at + b) for target, a, b in links]
        lines.append(line)
        at += len(line) + 1
    parts.text = "\n".join(lines)
    return parts


def _unlinked(line: str) -> str:
    return _EMPHASIS.sub(r"\2", _links(line)[0])


def _links(line: str) -> tuple[str, list[tuple[str, int, int]]]:
    """A line of Markdown as plain text, and (target, start, end) of its links there."""
    out, links, at, length = [], [], 0, 0
    line = _IMAGE.sub("", line)
    for m in _LINK.finditer(line):
        before = _EMPHASIS.sub(r"\2", line[at : m.start()])
        shown = _EMPHASIS.sub(r"\2", m[2] or m[1] or m[3])
        target = m[1].strip() if m[1] else _target(m[4])
        out += [before, shown]
        length += len(before)
        if target:
            links.append((target, length, length + len(shown)))
        length += len(shown)
        at = m.end()
    out.append(_EMPHASIS.sub(r"\2", line[at:]))
    return "".join(out), links


def _target(address: str) -> str:
    """The target of a link: the name of the page, without folders, suffix and anchor; "" for another site or a place on
    the page."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    if parts.scheme or parts.netloc or not parts.path:
        return ""
    return tidy(PurePosixPath(unquote(parts.path)).stem.replace("_", " "))


class _Page(HTMLParser):
    """An HTML page as `_Parts`: rows of two cells and lists of definitions become `key: value` lines. Where HTML allows
    omitting an end tag (cells, rows, terms), the next tag closes the open element."""

    def __init__(self, raw: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title, self.type, self.h1, self._outer = "", "", "", ""
        self.quiet: list[tuple[int, int]] = []
        self._main, self._pre = False, -1
        self.aliases: list[str] = []
        self.links: list[tuple[str, int, int]] = []
        self._out: list[str] = []
        self._at, self._hidden, self._stack = 0, 0, []
        self._link: tuple[str, int] | None = None
        self._bold: int | None = None
        self._naming = ""
        self._paragraphs = 0
        self._cell = ""  # the open one: td, th or dt
        self._row: list[tuple[str, int]] = []  # cells of a row: tag, position in `_out` of the gap after it
        self.feed(raw)
        self.close()
        self.text = "".join(self._out)
        self.title = self.h1 or self._outer or self.title

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "title" and not self.title:
            self._naming = "title"
        if self._hidden:
            self._hidden += tag not in _VOID
            return
        if tag in ("main", "article") and not self._main:  # the text before it is the name of the site
            self._main, self._outer, self.h1 = True, self.h1, ""
        if tag == "pre" and self._pre < 0:
            self._pre = self._at
        style = (given.get("style") or "").replace(" ", "").lower()
        if self._naming == "h1" and tag in _BLOCK:
            self._naming = ""
        if tag in ("td", "th", "tr", "dt", "dd"):
            self._end_cell()
        if tag == "tr":
            self._end_row()
        if tag in _DROPPED or (
            tag not in _VOID and ("hidden" in given or "display:none" in style or "visibility:hidden" in style)
        ):
            self._hidden = tag not in _VOID
            return
        if tag in _BLOCK and tag != "dd" or tag == "dt":  # a term and its definition are one line
            self._break()
            self._paragraphs += tag == "p"
        if tag in ("td", "th", "dt"):
            self._cell = tag
        if tag == "h1" and not self.h1:
            self._naming = "h1"
        elif tag == "a":
            self._link = (_target(given.get("href") or ""), self._at)
        elif tag in ("b", "strong"):
            self._bold = self._at

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCK and not self._hidden:
            self._break()

    def handle_endtag(self, tag: str) -> None:
        if tag in ("title", "h1"):
            self._naming = ""
        if self._hidden:
            self._hidden -= tag not in _VOID
            return
        if tag == "pre" and self._pre >= 0:
            self.quiet.append((self._pre, self._at))
            self._pre = -1
        if tag in ("td", "th", "dt", "tr", "table", "dl"):
            self._end_cell()
        if tag in ("tr", "table"):
            self._end_row()
        if tag in _BLOCK:
            self._break()
        elif tag == "a" and self._link is not None:
            (target, start), self._link = self._link, None
            if target and start < self._at:
                self.links.append((target, start, self._at))
        elif tag in ("b", "strong") and self._bold is not None:
            heading = tidy("".join(self._out)[self._bold :]) if self._paragraphs <= 1 and self._at < 4000 else ""
            if 0 < len(heading) <= 100 and not heading.endswith(":"):
                self.aliases.append(heading)
            self._bold = None

    def _end_cell(self) -> None:
        if not self._cell:
            return
        keyed = self._cell != "td" and not "".join(self._out[-1:]).rstrip().endswith(":")
        self._row.append((self._cell, len(self._out)))
        self._say(": " if keyed and self._out else "  ")
        self._cell = ""

    def _end_row(self) -> None:
        """In a row of two cells the first is the key of the second; the gap between them keeps its length, so that the
        positions of links stay valid."""
        if [tag for tag, _ in self._row] == ["td", "td"]:
            gap = self._row[0][1]
            if gap and not self._out[gap - 1].rstrip().endswith(":"):
                self._out[gap] = ": "
        self._row = []

    def handle_data(self, data: str) -> None:
        if self._naming == "title":
            self.title += data
        if self._hidden or self._naming == "title":
            return
        if self._naming == "h1":
            self.h1 += data
        text = re.sub(r"\s+", " ", data)
        self._say(text.lstrip() if not self._out or self._out[-1].endswith(("\n", " ")) else text)

    def _say(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._at += len(text)

    def _break(self) -> None:
        if self._out and not self._out[-1].endswith("\n"):
            self._say("\n")


def plain(fragment: str) -> str:
    """The text of a fragment of HTML ("<strong>note:</strong> 3 &ndash; 4" -> "note: 3 - 4" with its own dash)."""
    return _Page(fragment).text.strip() if "<" in fragment else html.unescape(fragment)


def _json(raw: str, name: str, stem: str, titles: Sequence[str], encoding: str) -> Iterator[Document]:
    """A list of {"title", "text"}, one such object, or another object whose leaves become `key: value` lines."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if (
        isinstance(data, Mapping)
        and data.keys() == {"title", "text"}
        and all(isinstance(v, str) for v in data.values())
    ):
        yield Document(id=name, title=tidy(data["title"]), text=data["text"], encoding=encoding)
        return
    if isinstance(data, Mapping):
        lines = [f"{key}: {' '.join(plain(value).split())}" for key, value in leaves(data)]
        candidates = (tidy(plain(value)) for path in titles if isinstance(value := _at(data, path), str))
        title = next((t for t in map(without_note, candidates) if t.lower() not in _NONE), stem)
        yield Document(id=name, title=title, text="\n".join(lines), encoding=encoding)
        return
    if not isinstance(data, list):
        raise ValueError("it is neither a JSON object nor a list of them")
    for i, item in enumerate(data, 1):
        if not (isinstance(item, Mapping) and isinstance(item.get("title"), str) and isinstance(item.get("text"), str)):
            raise ValueError(f"item {i} of its list has no title and text")
        yield Document(id=f"{name}#{i}", title=tidy(item["title"]), text=item["text"], encoding=encoding)


def _at(data: Any, path: str) -> Any:
    for step in path.split("."):
        data = data.get(step) if isinstance(data, Mapping) else None
    return data


def leaves(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """(key, text) of every leaf of nested objects. A key includes as much of its path as is needed to understand it:

    {"Geography": {"Area": {"total": {"text": "28,748 sq km"}}}} gives ("total area", "28,748 sq km"); a last step of
    two or more words is used alone if it repeats the step before it; otherwise that step is added in brackets: "Exports
    2024", "life expectancy (male)".
    """
    for step, value in data.items():
        here = (*path, tidy(str(step)))
        if isinstance(value, Mapping):
            yield from leaves(value, here)
        elif isinstance(value, list):
            joined = "; ".join(str(v) for v in value if isinstance(v, str | int | float))
            if joined:
                yield _key(here), joined
        elif value is not None and str(value).strip():
            yield _key(here), "yes" if value is True else "no" if value is False else str(value)


def _key(path: tuple[str, ...]) -> str:
    steps = [s for s in path if s != "text"] or [path[-1]]
    if len(steps) > 1:
        steps = steps[1:] if len(steps) > 2 or path[-1] == "text" else steps  # the chapter adds nothing to the value
    last, parent = steps[-1], steps[-2] if len(steps) > 1 else ""
    last = last[len(parent) :].lstrip(" -:") if parent and last.lower().startswith(parent.lower() + ":") else last
    if not parent or parent.lower() in last.lower():
        key = last
    elif last.lower() in _SIDES:
        key = f"{last} {parent[:1].lower() + parent[1:] if not parent[:2].isupper() else parent}"
    else:
        key = f"{parent} ({last})"
    return key.replace(":", " -")
