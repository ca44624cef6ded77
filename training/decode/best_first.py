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

The planner (plans > 0): before the search, and again where `stall` expansions in a row have reached no new word, at most `plans` times,
`width` whole proofs are drawn behind the likeliest open one (or the last that was) and checked by nobody: their words are sub-goals. A step between two of
them that the checker accepts is a lemma, whatever is wrong before it. Lemmas are kept for the whole search: a word that an open
proof and lemmas lead to is reached without another draw, so that what was proved of one plan completes another. A plan counts as an
expansion. The log-prob of a lemma is that of the plan it was written in. Our reading: in the paper another model plans in words, and
several provers share the cache.

Leaves out a prover's language: a tactic is a use of one equation.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from synth.verify.rewriting import fault, follow, words
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
    goals = [(m, turned) for form, turned in _GOALS if rules and (m := form.search(flat, rules.end()))]
    if not rules or not goals:
        return None
    (match, turned), *_ = goals
    first, last = match.groups()[::-1] if turned else match.groups()
    return Goal(tuple(tuple(rule.split("=")) for rule in rules[0].split(";")), first, last)


@dataclass(kw_only=True)
class _Search:
    """The open proofs of one ask. heap: (-score, order, proof); ends: words that some proof has reached; at: such a proof of each, "" for
    the empty one; lemmas: word -> word -> the piece that writes the step; planned, idle, used: plans so far, expansions since a new
    word, lemmas that were built upon."""

    goal: Goal
    root: Writing
    heap: list[tuple[float, int, Writing]] = field(default_factory=list)
    ends: set[str] = field(default_factory=set)
    drawn: int = 0
    expanded: int = 0
    done: Writing | None = None
    at: dict[str, Writing] = field(default_factory=dict)
    lemmas: dict[str, dict[str, Segment]] = field(default_factory=dict)
    planned: int = 0
    idle: int = 0
    used: int = 0


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
    plans: int = 0,
    stall: int = 4,
) -> list[Decoded]:
    if min(width, expansions, step_tokens, stall) < 1:
        raise ValueError(
            f"width is {width}, expansions {expansions}, step_tokens {step_tokens}, stall {stall}: all are numbers of 1 or more"
        )
    if plans < 0 or (plans and not steps):
        raise ValueError(f"plans is {plans}: a number of 0 or more, and 0 with steps: false, which is no search")
    writings = begun(asks)
    goals = [stated(engine.text(ask.prompt)) for ask in asks]
    searches = [_Search(goal=g, root=w) if g else None for g, w in zip(goals, writings, strict=True)]
    for s in searches:
        if s:
            _open(s, s.root, 0.0, 0, length_norm)
            s.at[""], s.idle = s.root, stall
    while True:
        _plan(engine, [s for s in searches if s and _stalled(s, plans, stall, expansions)], width, length_norm)
        at_work = _next([s for s in searches if s and s.done is None and s.heap and s.expanded < expansions])
        if not at_work:
            if any(s and _stalled(s, plans, stall, expansions) for s in searches):
                continue
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
            _stitch(s, length_norm)
    chosen = []
    for s, w in zip(searches, writings, strict=True):
        best = w if s is None else s.done or (s.heap[0][2] if s.heap else s.root)
        if s:
            ended = "proved" if s.done and not _fault(engine, s.goal, s.done.ids) else "not proved"
            lemmas = f", {s.planned} plans, {s.used} lemmas used" if plans else ""
            best.account.events.append(f"{ended} after {s.expanded} expansions{lemmas}")
        chosen.append(best)
    finish(engine, [w for w in chosen if not w.over])
    return [w.decoded() for w in chosen]


def _next(searches: Sequence[_Search]) -> list[tuple[_Search, Writing]]:
    """The likeliest open proof of each search, which it is taken from."""
    out = []
    for s in searches:
        chosen = heapq.heappop(s.heap)[2]
        chosen.drawn, s.expanded, s.idle = s.expanded, s.expanded + 1, s.idle + 1
        out.append((s, chosen))
    return out


def _open(s: _Search, w: Writing, logp: float, depth: int, a: float) -> None:
    heapq.heappush(s.heap, (-logp / max(depth, 1) ** a, s.drawn, w))
    s.drawn += 1


def _chain(engine: Engine, ids: np.ndarray) -> list[str] | None:
    """The words of a proof under way."""
    text = engine.text(ids).rpartition("<answer>")[2].partition("</answer>")[0]
    return words(text)


def _fault(engine: Engine, goal: Goal, ids: np.ndarray) -> str:
    proof = _chain(engine, ids)
    return "no chain" if proof is None else fault(proof, goal.rules, goal.first, goal.last)


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
    proof = _chain(engine, after.ids)
    if proof is None:
        return
    if whole:
        if not fault(proof, s.goal.rules, s.goal.first, s.goal.last):
            s.done = after
        return
    *before, open_end = proof
    if open_end or not before or before[-1] in s.ends:
        return
    if fault(before, s.goal.rules, s.goal.first, before[-1]):
        return
    _reach(s, after, before[-1], len(before), a)


def _reach(s: _Search, after: Writing, word: str, depth: int, a: float) -> None:
    s.ends.add(word)
    s.at[word], s.idle = after, 0
    logp = float(sum(p.logp.sum() for p in after.parts if p.logp is not None))
    _open(s, after, logp, depth, a)


def _stalled(s: _Search, plans: int, stall: int, expansions: int) -> bool:
    """Whether it is time for a plan."""
    late = s.idle >= stall or not s.heap
    return s.done is None and s.planned < plans and s.expanded < expansions and late


def _plan(engine: Engine, searches: Sequence[_Search], width: int, a: float) -> None:
    """Draws plans behind the likeliest open proof of each search, and uses what they prove."""
    if not searches:
        return
    behind = [s.heap[0][2] if s.heap else [*s.at.values()][-1] for s in searches]
    for s, w in zip(searches, behind, strict=True):
        w.drawn, s.expanded, s.planned, s.idle = s.expanded, s.expanded + 1, s.planned + 1, 0
    size = max(w.ask.max_tokens for w in behind)
    for s, w, few in zip(searches, behind, options(engine, behind, width, size, least=1), strict=True):
        if not few:
            s.done = w
        for piece in few:
            whole = Writing(ask=w.ask, account=w.account, parts=[*w.parts])
            whole.take(piece)
            if s.done is None and piece.stop != "length" and not _fault(engine, s.goal, whole.ids):
                s.done = whole
            _learn(engine, s, w, piece)
        _stitch(s, a)


def _learn(engine: Engine, s: _Search, w: Writing, piece: Segment) -> None:
    """Keeps the steps of a plan that the checker accepts."""
    before = _chain(engine, w.ids) or [""]
    word, known, start = before[-2] if len(before) > 1 else "", len(before), 0
    for n in range(1, len(piece.ids) + 1):
        proof, last = _chain(engine, np.concatenate([w.ids, piece.ids[:n]])), n == len(piece.ids)
        if proof is None:
            continue
        ends = last and piece.stop != "length" and proof[-1] != ""
        if len(proof) > known and proof[-1] == "" or ends:
            new = proof[-1] if ends else proof[-2]
            step = _slice(piece, start, n)
            if new == s.goal.first if word == "" else new in follow(word, s.goal.rules):
                if not ends or new == s.goal.last:
                    s.lemmas.setdefault(word, {}).setdefault(new, step)
            word, known, start = new, len(proof), n


def _slice(piece: Segment, start: int, end: int) -> Segment:
    parts = {k: v[start:end] for k in ("logp", "entropy") if (v := getattr(piece, k)) is not None}
    return replace(piece, ids=piece.ids[start:end], stop=piece.stop if end == len(piece.ids) else "length", **parts)


def _stitch(s: _Search, a: float) -> None:
    """Opens what open proofs and lemmas lead to, and ends the search where that is the goal."""
    waiting = list(s.at) if s.done is None and s.lemmas else []
    while waiting:
        word = waiting.pop(0)
        for new, step in s.lemmas.get(word, {}).items():
            w = s.at[word]
            if (new in s.ends and step.stop == "length") or len(w.ids) + len(step.ids) > w.ask.max_tokens:
                continue
            after = Writing(ask=w.ask, account=w.account, parts=[*w.parts])
            after.take(step)
            s.used += 1
            if step.stop != "length":  # it is kept only where it is the goal's
                s.done = after
                return
            _reach(s, after, new, len(after.parts), a)
            waiting.append(new)


def _step(engine: Engine, before: np.ndarray, ids: np.ndarray) -> int:
    """How many tokens of a piece lie before the next step: up to the first mark between words behind a word; 0 where there
    is none."""
    known = len(_chain(engine, before) or [""])
    for n in range(1, len(ids) + 1):
        proof = _chain(engine, np.concatenate([before, ids[:n]]))
        if proof is not None and len(proof) > known and proof[-1] == "":
            return n
    return 0
