"""A source of text without a model: worked solutions with errors at known places, so that makers of pairs can run and
be tested anywhere.

Given a problem that it knows (further lines after the problem's text are ignored), it writes the worked solution step
by step; each step goes wrong with probability `error`: one of its numbers is changed, and with it the results of all
later steps. A conversation that ends with the assistant's message is continued; after a wrong step, the error is
carried on, or noticed with probability `notices`. Asked again after an answer ("try again", a critique), it gives the
solution with probability 1 - `error`. Its text is a function of the conversation and the seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from synth.preferences.injected_errors import _INTEGER, replace_number
from synth.preferences.makers._made import steps
from synth.lookup import Lookup
from synth.types import Message, Problem, Sampling, seed_for


class Flawed:
    """A `Generate` over problems with `lineage["solution"]`. Raises LookupError for a conversation about none of
    them."""

    def __init__(self, problems: Iterable[Problem], *, error: float = 0.3, notices: float = 0.0) -> None:
        self._solutions = Lookup[str]()
        for p in problems:
            if p.lineage.get("solution"):
                self._solutions[p.question] = p.lineage["solution"]
        self.error, self.notices = error, notices

    def __call__(self, conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        return [
            self._one(c, Random(seed_for("flawed", sampling.seed, [[m.role, m.content] for m in c])))
            for c in conversations
        ]

    def _one(self, conversation: Sequence[Message], rng: Random) -> str:
        solution = next((s for m in conversation if (s := self._solution(m.content)) is not None), None)
        if solution is None:
            raise LookupError(
                f"no worked solution is known of {conversation[-1].content[:80]!r}: give Flawed the problem"
            )
        replies = [m.content for m in conversation if m.role == "assistant"]
        if replies and conversation[-1].role == "user":  # asked again
            return solution if rng.random() >= self.error else replies[-1]
        begun = replies[-1] if replies else ""
        known = steps(solution)
        done = len(steps(begun))
        wrong = self._changed("".join(known[:done]), begun)
        if wrong and rng.random() < self.notices:
            wrong = {}
        return "".join(self._written(known[done:], wrong, rng))

    def _solution(self, text: str) -> str | None:
        """Of the problem that a message asks, or asks something about in lines behind it."""
        lines = text.split("\n")
        starts = ("\n".join(lines[:n]) for n in range(len(lines), 0, -1))
        return next((self._solutions[s] for s in starts if s in self._solutions), None)

    def _changed(self, true: str, begun: str) -> dict[str, str]:
        """Number -> what stands in its place in the text so far."""
        a, b = _INTEGER.findall(true), _INTEGER.findall(begun)
        return {x: y for x, y in zip(a, b, strict=False) if x != y}

    def _written(self, rest: Sequence[str], wrong: dict[str, str], rng: Random) -> Iterable[str]:
        for step in rest:
            if not wrong and rng.random() < self.error and (numbers := _INTEGER.findall(step)):
                number = numbers[-1]
                wrong = {number: str(int(number) + rng.choice((-2, -1, 1, 2)))}
            elif wrong and (numbers := _INTEGER.findall(step)) and numbers[-1] not in wrong:
                wrong = {**wrong, numbers[-1]: str(int(numbers[-1]) + rng.choice((-2, -1, 1, 2)))}
            for number, other in wrong.items():
                step = replace_number(step, number, other)
            yield step
