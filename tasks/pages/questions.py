"""A sample of questions, for the terminal and as a page: the text, the facts behind it, and why each clue is needed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from synth.knowledge.kb import KB
from synth.questions.fuzzy.text import with_article
from synth.questions.pattern import Clue, Named, Node, Nothing, Span, Than, Third, deletions, from_json, inner
from synth.types import Problem
from tasks.pages.page import page as document
from tasks.pages.render import Macros
from tasks.core.text import escape, harmless


def facts(p: Problem, kb: KB) -> list[str]:
    """The sentences that the answer rests on, the asked one last."""
    known = (kb.facts[f] for f in p.lineage["facts"] if f in kb.facts)
    return [kb.relations[f.relation].sentence(_name(kb, f.subject), [_name(kb, f.value)]) for f in known]


def _name(kb: KB, value: str) -> str:
    return with_article(kb.text(value), kb.entities[value].type) if value in kb.entities else kb.text(value)


def needed(p: Problem, kb: KB) -> Iterator[tuple[str, str]]:
    """(a clue in a few words, another entity that would fit without it), as far as the row names them."""
    root = from_json(p.lineage["pattern"]).root
    witnesses = p.lineage.get("witnesses", {})
    if isinstance(root, Node):
        for i, (clue, _) in enumerate(zip(_clues(root), deletions(root), strict=True)):
            if str(i) in witnesses:
                yield _said(clue, kb), kb.text(witnesses[str(i)])


def _clues(node: Node) -> Iterator[Clue | Named]:
    """The clues, in the order of `deletions`."""
    for clue in node.clues:
        yield clue
        if isinstance(target := inner(clue), Node):
            yield from _clues(target)


def _said(clue: Clue | Named, kb: KB) -> str:
    if isinstance(clue, Named):
        return f"name: {clue.initial}…" + (f" ({clue.words} words)" if clue.words else "")
    target, label = clue.target, kb.relations[clue.relation].label
    label = label if clue.forward else f"{label} of"
    if isinstance(target, Span):
        return f"{label}: {target.said}"
    if isinstance(target, Third):
        return f"{label}: {'top' if target.largest else 'bottom'} third"
    if isinstance(target, Nothing):
        return f"{label}: none"
    term = inner(clue)
    name = f"another {term.type.replace('_', ' ')}" if isinstance(term, Node) else kb.text(term or "")
    return f"{label}: {name}" + (" (compared)" if isinstance(target, Than) else "")


def difficulty(p: Problem) -> dict[str, str]:
    """The axes of difficulty, as they are shown."""
    names = {"hops": "depth", "clues": "clues", "level": "level", "lookups": "pages to open", "bits": "bits given up"}
    return {names[k]: f"{p.difficulty[k]:g}" for k in names if k in p.difficulty}


def lines(sample: Sequence[Problem], kb: KB) -> list[str]:
    """The sample as lines for the terminal."""
    out = []
    for i, p in enumerate(sample, 1):
        out += textwrap.wrap(p.question, 110, initial_indent=f"{i:2d}. ", subsequent_indent="    ")
        out.append("    " + ", ".join(f"{k} {v}" for k, v in difficulty(p).items()) + f"; answer: {p.answer}")
    return [harmless(line) for line in out]


def markdown(sample: Sequence[Problem], kb: KB, total: int) -> str:
    """The sample as Markdown: each question, its answer, and the facts behind it."""
    lead = f"{len(sample)} of {total:,} questions about a knowledge base of {len(kb.facts):,} facts, from the easiest to the hardest: one of each"
    proof = "Each has one answer there, and each clue is needed."
    asks = "Which question this page answers: which questions can be grown from a knowledge base, and how hard do they get?"
    out = ["# Questions at rising difficulty", "", asks, "", f"{lead} {len(sample)}-th part, chosen by hash. {proof}"]
    for i, p in enumerate(sample, 1):
        axes = ", ".join(f"{k} {v}" for k, v in difficulty(p).items())
        out += [
            "",
            f"{i}. {_literal(p.question)}",
            "",
            f"    **{_literal(p.answer)}** ({axes}). {_literal(' '.join(facts(p, kb)))}",
        ]
    return "\n".join(out) + "\n"


def _literal(text: str) -> str:
    """Escaped text that Markdown and HTML show literally."""
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", escape(" ".join(text.split()), quote=False))


def page(sample: Sequence[Problem], kb: KB, total: int) -> str:
    """The sample as one HTML document."""
    shown = [
        {
            "question": p.question,
            "answer": p.answer,
            "difficulty": difficulty(p),
            "facts": facts(p, kb),
            "needed": list(needed(p, kb)),
        }
        for p in sample
    ]
    return document(
        "Questions at rising difficulty",
        f"{len(sample)} of {total} questions, from the easiest to the hardest: one of each {len(sample)}-th part, chosen by hash.",
        f"Each has one answer in a knowledge base of {len(kb.facts):,} facts, by a query that shares nothing with what made it; each clue is needed.",
        [("Questions", Macros("questions.html").questions(shown))],
    )
