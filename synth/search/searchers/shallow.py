"""Searchers without reasoning: questions that they answer are too easy."""

from __future__ import annotations

from collections import Counter

from synth.questions.pattern import Clue, Node, nodes
from synth.search.searchers import Tools, World
from synth.search.searchers._pages import Pages, pattern_of
from synth.types import Problem
from synth.verify.exact import normalise


def closed_book(problem: Problem, tools: Tools, world: World) -> str | None:
    """No call: the most frequent answer to what is asked."""
    pattern = pattern_of(problem)
    return world.priors[pattern.relation, pattern.forward][0]


def one_search(problem: Problem, tools: Tools, world: World) -> str | None:
    """One call, the question itself as the query. It is granted the answer where that stands in the result, beside the
    root's name."""
    text = f" {normalise(tools.search(problem.question))} "
    root = world.kb.text(problem.lineage["root"])
    names = (problem.answer, *problem.args.get("aliases", ()))
    seen = any(f" {normalise(n)} " in text for n in names) and f" {normalise(root)} " in text
    return problem.answer if seen else None


def greedy(problem: Problem, tools: Tools, world: World) -> str | None:
    """A query for every clue that names something, the page of the first name in the result opened, what is asked read
    off it; the answer that was read most often, the first of equals."""
    pattern, pages, read = pattern_of(problem), Pages(tools, world), Counter()
    if isinstance(pattern.root, str):
        answers = pages.ends(world.kb.text(pattern.root), pattern.relation, pattern.forward)
        return answers[0] if answers else None
    for node in nodes(pattern.root):
        for clue in node.clues:
            if isinstance(clue, Clue) and isinstance(clue.target, str):
                name = _first(tools, world, clue, node)
                if name is not None:
                    read.update(pages.ends(name, pattern.relation, pattern.forward)[:1])
    return read.most_common(1)[0][0] if read else None


def _first(tools: Tools, world: World, clue: Clue, node: Node) -> str | None:
    """The first name that the result of a clue's query gives for the variable."""
    r, name = world.kb.relations[clue.relation], world.kb.text(str(clue.target))
    text = tools.search(r.query_back(name) if clue.forward else r.query(name))
    values = world.reader.read(clue.relation, text, name, clue.forward)
    return next((x for x in values if world.reader.known(node.type, x)), None)
