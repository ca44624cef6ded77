"""Branch and check: knows the clues, and not which is best to begin with. It lists the candidates of every clue that
can be listed, keeps what the lists share, and checks the clues that are left on each. Its calls are what the work costs
without luck."""

from __future__ import annotations

from synth.questions.pattern import Node
from synth.search.searchers import Tools, World
from synth.search.searchers._pages import Pages, pattern_of
from synth.types import Problem


class FromAll(Pages):
    """Lists the candidates of every clue that can be listed."""

    def members(self, node: Node) -> list[str]:
        shared: list[str] | None = None
        unlisted = []
        for clue in node.clues:  # in the order of the question
            names = self.candidates(clue)
            if names is None:
                unlisted.append(clue)
            else:
                shared = [
                    x for x in (names if shared is None else shared) if x in set(names) and self.known(node.type, x)
                ]
        return [x for x in shared or () if all(self.holds(x, c) for c in unlisted)]


def branch_and_check(problem: Problem, tools: Tools, world: World) -> str | None:
    """The answer, where one candidate is left and its page gives one."""
    pattern, pages = pattern_of(problem), FromAll(tools, world)
    roots = [world.kb.text(pattern.root)] if isinstance(pattern.root, str) else pages.members(pattern.root)
    answers = list(dict.fromkeys(x for root in roots for x in pages.ends(root, pattern.relation, pattern.forward)))
    return answers[0] if len(answers) == 1 else None
