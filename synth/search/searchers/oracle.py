"""The oracle: knows the pattern and which way through it is the cheapest. Its calls are a lower bound; that it answers
is a gate."""

from __future__ import annotations

from synth.questions.pattern import Clue, Named, Node, steps
from synth.search.searchers import Spent, Tools, World
from synth.search.searchers._pages import Pages, pattern_of
from synth.search.searchers.branch_and_check import FromAll
from synth.types import Problem


class FromOne(Pages):
    """Follows one clue to its candidates and checks the others on their pages."""

    def __init__(self, tools: Tools, world: World, lead: Clue | Named | None = None) -> None:
        super().__init__(tools, world)
        self.lead = lead

    def members(self, node: Node) -> list[str]:
        lead = self.lead if self.lead in node.clues else min(node.clues, key=steps, default=None)
        names = None if lead is None else self.candidates(lead)
        return [
            x
            for x in names or ()
            if self.known(node.type, x) and all(self.holds(x, c) for c in node.clues if c is not lead)
        ]


def oracle(problem: Problem, tools: Tools, world: World) -> str | None:
    """The answer along the cheapest way: each clue of the root is tried as the beginning, and so is listing all of
    them."""
    pattern = pattern_of(problem)
    if isinstance(pattern.root, str):
        return _only(Pages(tools, world).ends(world.kb.text(pattern.root), pattern.relation, pattern.forward))
    ways: list[Pages] = [FromAll(Tools(tools.index, tools.most), world)]
    ways += [FromOne(Tools(tools.index, tools.most), world, lead) for lead in pattern.root.clues]
    tries = []
    for pages in ways:
        try:
            roots = pages.members(pattern.root)
            answers = dict.fromkeys(x for root in roots for x in pages.ends(root, pattern.relation, pattern.forward))
        except Spent:
            continue
        if (answer := _only(list(answers))) is not None:
            tries.append((len(pages.tools.calls), answer, pages.tools.calls))
    if not tries:
        return None
    _, answer, calls = min(tries, key=lambda t: t[0])
    tools.calls.extend(calls)
    return answer


def _only(names: list[str]) -> str | None:
    return names[0] if len(names) == 1 else None
