"""BFS-Prover's search: a proof is written step by step, a checker reads every step, and the most likely open proof goes on first.

"Scaling up Multi-Turn Off-Policy RL and Multi-Agent Tree Search for LLM Step-Provers" 2025 (arXiv 2509.06493), not read in
the paper; the rules are our reading.

    score(s) = sum of log-probabilities of the steps that lead to s / depth(s)^a
    s = argmax of the open proofs;  width next steps are drawn from it;  those that the checker accepts, and whose end no
    other open proof has reached, are open too;  a step that ends at the goal ends the search

A step is one word of a chain by given equations (synth/verify/rewriting.py), which are read of the prompt; a step is
cut where the next one begins. Where the budget or `expansions` are used up, or nothing is open, the best open proof is
written to its end unchecked. A prompt that states nothing of the kind is answered plainly. steps: False is the control:
whole proofs are drawn, and the first that the checker accepts is given.

Leaves out the planner with its cache of lemmas, and a prover's language: a tactic is a use of one equation.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from synth.verify.rewriting import fault, words
from training.decode import Ask, Decoded, Engine
from training.decode._segments import Writing, begun, finish, options
from training.types import Segment

_RULES = re.compile(r"[a-z]+=[a-z]+(?:;[a-z]+=[a-z]+)*")
_GOALS = (  # forms of the last sentence, and whether the goal is named first
    (re.compile(r"(?:[Pp]rovethat|showthat|\.)([a-z]+)=([a-z]+)"), False),
    (re.compile(r"Derive([a-z]+)from([a-z]+)"), True),
    (re.compile(r"turntheword([a-z]+)into([a-z]+)"), False),
    (re.compile(r"Whyis([a-z]+)equalto([a-z]+)"), False),
)
_LEADS = ("Giventhat", "Bytheequations", "Let", "Thesewordsareequal:", "Equationsbetweenwords:")


@dataclass(frozen=True)
class Goal:
    """Equations, and the two words whose equality is to be proved."""

    rules: tuple[tuple[str, ...], ...]
    first: str
    last: str


def stated(text: str) -> Goal | None:
    """What a prompt asks to be proved, in the forms of the family `rewrite_proofs` or as "ab = ba; aa = b. aab = bb"."""
    flat = "".join(text.split())
    for lead in _LEADS:
        flat = flat.replace(lead, " ")
    flat = flat.replace(",showthat", " showthat").replace(",turntheword", " turntheword")
    rules = _RULES.search(flat)
    found = [(m, turned) for form, turned in _GOALS if rules and (m := form.search(flat, rules.end()))]
    if not rules or not found:
        return None
    (match, turned), *_ = found
    first, last = match.groups()[::-1] if turned else match.groups()
    return Goal(tuple(tuple(rule.split("=")) for rule in rules[0].split(";")), first, last)


@dataclass(kw_only=True)
class _Search:
    """The open proofs of one ask. heap: (-score, order, proof); ends: words that some proof has reached."""

    goal: Goal
    root: Writing
    heap: list[tuple[float, int, Writing]] = field(default_factory=list)
    ends: set[str] = field(default_factory=set)
    drawn: int = 0
    expanded: int = 0
    done: Writing | None = None


def best_first(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    width: int = 8,
    expansions: int = 64,
    length_norm: float = 0.5,
    step_tokens: int = 12,
    steps: bool = True,
) -> list[Decoded]:
    if min(width, expansions, step_tokens) < 1:
        raise ValueError(
            f"width is {width}, expansions {expansions}, step_tokens {step_tokens}: all are numbers of 1 or more"
        )
    writings = begun(asks)
    goals = [stated(engine.text(ask.prompt)) for ask in asks]
    searches = [_Search(goal=g, root=w) if g else None for g, w in zip(goals, writings, strict=True)]
    for s in searches:
        if s:
            _open(s, s.root, 0.0, 0, length_norm)
    while True:
        at_work: list[tuple[_Search, Writing]] = []
        for s in searches:
            if s and s.done is None and s.heap and s.expanded < expansions:
                chosen = heapq.heappop(s.heap)[2]
                chosen.drawn, s.expanded = s.expanded, s.expanded + 1
                at_work.append((s, chosen))
        if not at_work:
            break
        size = step_tokens if steps else max(w.ask.max_tokens for _, w in at_work)
        drawn = options(engine, [w for _, w in at_work], width, size, least=1)
        for (s, w), few in zip(at_work, drawn, strict=True):
            if not few:  # the budget: what was drawn plainly is the answer
                s.done = w
            for piece in few:
                _judge(engine, s, w, piece, steps=steps, a=length_norm)
            if s.done is None and not steps:
                _open(s, s.root, 0.0, 0, length_norm)
    chosen = []
    for s, w in zip(searches, writings, strict=True):
        best = w if s is None else s.done or (s.heap[0][2] if s.heap else s.root)
        if s:
            ended = "proved" if s.done and not _fault(engine, s.goal, s.done.ids) else "not proved"
            best.account.events.append(f"{ended} after {s.expanded} expansions")
        chosen.append(best)
    finish(engine, [w for w in chosen if not w.over])
    return [w.decoded() for w in chosen]


def _open(s: _Search, w: Writing, logp: float, depth: int, a: float) -> None:
    heapq.heappush(s.heap, (-logp / max(depth, 1) ** a, s.drawn, w))
    s.drawn += 1


def _chain(engine: Engine, ids: np.ndarray) -> list[str] | None:
    """The words of a proof under way."""
    text = engine.text(ids).rpartition("<answer>")[2].partition("</answer>")[0]
    return words(text)


def _fault(engine: Engine, goal: Goal, ids: np.ndarray) -> str:
    said = _chain(engine, ids)
    return "no chain" if said is None else fault(said, goal.rules, goal.first, goal.last)


def _judge(engine: Engine, s: _Search, w: Writing, piece: Segment, *, steps: bool, a: float) -> None:
    """End the search where the piece ends a proof, and open the proof that it goes on with where its step holds."""
    if s.done is not None:
        return
    after = Writing(ask=w.ask, account=w.account, parts=[*w.parts])
    n = _step(engine, w.ids, piece.ids) if steps else 0
    whole = piece.stop != "length" and (not n or n == len(piece.ids))
    after.take(piece)
    if not n and not whole:
        return  # no step ends within it, or a whole proof that was not ended
    if n and n < len(piece.ids):
        after.cut(len(w.ids) + n)
    said = _chain(engine, after.ids)
    if said is None:
        return
    if whole:
        if not fault(said, s.goal.rules, s.goal.first, s.goal.last):
            s.done = after
        return
    *before, open_end = said
    if open_end or not before or before[-1] in s.ends:
        return
    if fault(before, s.goal.rules, s.goal.first, before[-1]):
        return
    s.ends.add(before[-1])
    logp = float(sum(p.logp.sum() for p in after.parts if p.logp is not None))
    _open(s, after, logp, len(before), a)


def _step(engine: Engine, before: np.ndarray, ids: np.ndarray) -> int:
    """How many tokens of a piece lie before the next step: up to the first mark between words behind a word; 0 where there
    is none."""
    known = len(_chain(engine, before) or [""])
    for n in range(1, len(ids) + 1):
        said = _chain(engine, np.concatenate([before, ids[:n]]))
        if said is not None and len(said) > known and said[-1] == "":
            return n
    return 0
