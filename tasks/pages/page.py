"""The report's HTML: one self-contained page. Whatever a model wrote is escaped; nothing is requested from anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.text import escape

CSS = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5c6577; --line: #dfe3ea; --paper: #ffffff; --tint: #f4f6f9;
  --user: #e8eefb; --tool: #fbf6e6;
  --base: #8a93a3; --sft: #3b73c4; --prefer: #b8791f; --rl: #14865a; --other: #7a4fb5; --bad: #b3372f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9aa4b5; --line: #303743; --paper: #14181f;
  --tint: #1c222b; --user: #223252; --tool: #2d2818;
  --base: #97a1b2; --sft: #6ea3ef; --prefer: #dda24c; --rl: #46c391; --other: #b08be6; --bad: #ee7d74; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 5rem; max-width: 66rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.015em; }
h2 { font-size: 1.25rem; margin: 3rem 0 .4rem; letter-spacing: -.01em; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { margin: .4rem 0 .8rem; max-width: 46rem; }
.soft, figcaption, .note { color: var(--soft); font-size: .9rem; }
.lead { font-size: 1.15rem; max-width: 50rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: 1rem 0 0; font-size: .9rem; }
a { color: var(--sft); text-decoration: none; }
a:hover { text-decoration: underline; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .95rem; margin: .6rem 0; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: .85rem; border-bottom: 1px solid var(--line);
  padding: .35rem .8rem .35rem 0; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: .4rem .8rem .4rem 0; vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
td small { color: var(--soft); }
.scroll { overflow-x: auto; }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: var(--tint);
  padding: .1em .35em; border-radius: 4px; overflow-wrap: anywhere; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .5em; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); gap: 1rem 1.4rem; }
figure { margin: 0; }
figcaption { margin-bottom: .2rem; }
svg { width: 100%; height: auto; display: block; font: 10.5px ui-sans-serif, system-ui, sans-serif; }
svg text { fill: var(--soft); }
svg text.name, svg text.row { fill: var(--ink); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis { stroke: var(--soft); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .band { fill-opacity: .2; }
svg .node { fill: var(--tint); stroke-width: 1.5; }
svg .edge { fill: none; stroke: var(--soft); stroke-width: 1.2; opacity: .55; }
svg .faint { opacity: .28; stroke-width: 1; }
.wide { max-width: 44rem; }
.bar { background: var(--tint); border-radius: 3px; height: .6rem; min-width: 6rem; overflow: hidden; }
.bar > i { display: block; height: 100%; background: var(--sft); }
.stack { display: flex; height: 1rem; border-radius: 3px; overflow: hidden; background: var(--tint); }
.stack > i { display: block; }
.reasons { display: flex; flex-wrap: wrap; gap: .3rem .5rem; margin: 0; padding: 0; list-style: none; }
.reasons li, .tag { background: var(--tint); border-radius: 999px; padding: .05rem .6rem; font-size: .85rem;
  white-space: nowrap; }
details { border: 1px solid var(--line); border-radius: 10px; margin: .5rem 0; }
summary { cursor: pointer; padding: .55rem .9rem; display: flex; gap: .7rem; align-items: baseline; }
summary::-webkit-details-marker { display: none; }
summary .q { flex: 1; min-width: 0; }
.right { color: var(--rl); }
.other { color: var(--bad); }
.chat { padding: .2rem .9rem .9rem; display: flex; flex-direction: column; gap: .45rem; }
.turn { max-width: 85%; border-radius: 12px; padding: .4rem .75rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.user { align-self: flex-end; background: var(--user); }
.assistant { align-self: flex-start; background: var(--tint); }
.tool, .system { align-self: flex-start; margin-left: 1.5rem; background: var(--tool); font-size: .92rem; }
.who { display: block; font-size: .72rem; color: var(--soft); letter-spacing: .03em; }
.call { font-weight: 600; color: var(--sft); }
.answer { font-weight: 600; color: var(--ink); }
li { margin: .25rem 0; }
ol.way { padding-left: 1.2rem; }
ol.way code { white-space: pre-wrap; }
@media (max-width: 36rem) { body { padding: 1.2rem .8rem 3rem; } h1 { font-size: 1.45rem; } .turn { max-width: 100%; }
  summary { flex-wrap: wrap; } summary .q { flex-basis: 100%; } .plots { grid-template-columns: 1fr; } }
@media print { nav, footer { display: none; } details { break-inside: avoid; } }
footer { margin-top: 4rem; color: var(--soft); font-size: .85rem; }
""" + "".join(
    f".c-{c} {{ stroke: var(--{c}); }} circle.c-{c}, .b-{c} {{ fill: var(--{c}); background: var(--{c}); stroke: none; }}\n"
    for c in ("base", "sft", "prefer", "rl", "other", "bad")
)

OUTCOME_COLOURS = {
    "right": "rl",
    "wrong": "sft",
    "malformed": "bad",
    "out_of_calls": "prefer",
    "truncated": "other",
    "unscorable": "base",
}
_TAG = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)


def page(title: str, lead: str, facts: str, sections: Sequence[tuple[str, str]]) -> str:
    """The whole document from (heading, HTML) sections; title, lead and facts are plain text."""
    anchors = [re.sub(r"\W+", "-", heading.lower()).strip("-") for heading, _ in sections]
    links = "".join(f'<a href="#{a}">{escape(h)}</a>' for a, (h, _) in zip(anchors, sections, strict=True))
    body = "".join(
        f'<section id="{a}"><h2>{escape(h)}</h2>{html}</section>'
        for a, (h, html) in zip(anchors, sections, strict=True)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><header><h1>{escape(title)}</h1>"
        f'<p class="lead">{escape(lead)}</p><p class="soft">{escape(facts)}</p><nav>{links}</nav></header><main>{body}</main>'
        "<footer>Made by Espalier. Every number on this page can be traced: <code>dvc dag</code>, <code>make ui</code>.</footer>"
        "</body></html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of cells that are already HTML; `numbers` are the columns aligned to the right."""
    right = ' class="n"'
    cell = lambda tag, i, x: f"<{tag}{right if i in numbers else ''}>{x}</{tag}>"  # noqa: E731
    top = "".join(cell("th", i, escape(h)) for i, h in enumerate(head))
    body = "".join("<tr>" + "".join(cell("td", i, x) for i, x in enumerate(r)) + "</tr>" for r in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>" if svg else ""


def dot(series: str) -> str:
    return f'<span class="dot b-{escape(series)}"></span>'


def bar(share: float) -> str:
    return f'<div class="bar"><i style="width:{100 * min(max(share, 0), 1):.1f}%"></i></div>'


def stack(counts: Mapping[str, int]) -> str:
    """One bar of coloured parts, each with its name and share on hover."""
    total = sum(counts.values()) or 1
    return (
        '<div class="stack">'
        + "".join(
            f'<i class="b-{OUTCOME_COLOURS.get(k, "other")}" style="width:{100 * n / total:.2f}%" title="{escape(k)}: {n / total:.0%}"></i>'
            for k, n in counts.items()
            if n
        )
        + "</div>"
    )


def tags(counts: Mapping[str, Any]) -> str:
    return (
        '<ul class="reasons">'
        + "".join(f"<li>{escape(str(k))} <b>{escape(str(n))}</b></li>" for k, n in counts.items())
        + "</ul>"
        if counts
        else "none"
    )


def episode(e: Mapping[str, Any], *, shown: bool = False) -> str:
    """One conversation as bubbles behind a line that says question, model and outcome; `shown` unfolds it."""
    question = next((m["content"] for m in e["messages"] if m["role"] == "user"), "")
    good = "right" if e["outcome"] == "right" else "other"
    calls = (
        f"{e['calls']} search{'es' if e['calls'] != 1 else ''}"
        if e["env"] == "search"
        else e["family"].replace("_", " ")
    )
    ended = escape(e["outcome"].replace("_", " "))
    head = (
        f'<summary><span class="q">{escape(question)}</span><span class="soft">{escape(calls)}</span>'
        f'<span class="tag">{dot(e["model"])}{escape(e["run"])}</span><b class="{good}">{ended}</b></summary>'
    )
    turns = "".join(
        f'<div class="turn {_role(m["role"])}"><span class="who">{escape(m["role"])}</span>{_said(m)}</div>'
        for m in e["messages"]
    )
    opening = "<details open>" if shown else "<details>"
    return f'{opening}{head}<div class="chat">{turns}<div class="note">Reference answer: {escape(e["answer"])}</div></div></details>'


def _role(role: str) -> str:
    return role if role in ("user", "assistant", "tool", "system") else "tool"


def _said(message: Mapping[str, str]) -> str:
    """A turn's text, escaped; in an assistant's turn searches and answers stand out."""
    text = message["content"]
    if message["role"] != "assistant":
        return escape(text)
    out, at = [], 0
    for found in _TAG.finditer(text):
        kind, inner = found.groups()
        out.append(escape(text[at : found.start()]))
        out.append(
            f'<span class="call">search: {escape(inner)}</span>'
            if kind == "search"
            else f'<span class="answer">answer: {escape(inner)}</span>'
        )
        at = found.end()
    return "".join(out) + escape(text[at:])
