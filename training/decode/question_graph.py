"""SPRING: a fixed graph of questions about the prompt; a question sees the answers of those that it reads, the last one acts.

Wu et al. 2023, "SPRING: GPT-4 Out-performs RL Algorithms by Studying Papers and Reasoning" (arXiv 2305.15486).

    h(v) = [ (question u, answer u) for u read by v ] + question v       answer v ~ model( prompt, h(v) )

`questions` are nodes {name, ask, reads}; they are asked once each, in topological order, of the frozen model, with up to
`piece_tokens` for an answer. The answer to the last one of the list is the turn. Nothing is trained. edges: "none" is the
control, the same questions of which none sees an answer.

`manual` are paragraphs that the model studies first: it keeps those of which it says that they matter, p(yes) > p(no) behind
the paragraph and `relevant`, and reads them before every question. `actions` are the turns that may be played: what was said is
mapped to the one that is spelled most alike. Where the budget has no room for a question and the turn behind it, the question is
left out, as is the manual. Each ask is charged for the study, as if it were alone.

Leaves out the summary of the kept paragraphs by the model itself, and the history of two steps (a conversation is read whole).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.decode import Account, Ask, Decoded, Draw, Engine
from training.types import Segment

QUESTIONS: tuple[Mapping[str, Any], ...] = (
    {"name": "given", "ask": "What is given?\n"},
    {"name": "wanted", "ask": "What is asked?\n"},
    {"name": "needs", "ask": "What does that need?\n", "reads": ["given", "wanted"]},
    {"name": "first", "ask": "What comes first?\n", "reads": ["given", "needs"]},
    {"name": "act", "ask": "So:\n", "reads": ["wanted", "first"]},
)


def question_graph(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    questions: Sequence[Mapping[str, Any]] = QUESTIONS,
    piece_tokens: int = 8,
    edges: Literal["listed", "none"] = "listed",
    manual: Sequence[str] = (),
    relevant: str = "Does this matter here? ",
    actions: Sequence[str] = (),
) -> list[Decoded]:
    nodes, last = ordered(questions), str(questions[-1]["name"])
    if piece_tokens < 1:
        raise ValueError(f"piece_tokens is {piece_tokens}: an answer has 1 token or more")
    if (manual or actions) and engine.ids is None:
        raise ValueError("a manual and actions are texts, and this model reads ids alone: leave both out")
    question_ids = {name: _ids(engine, text) for name, text, _ in nodes}
    legal = [_ids(engine, a) for a in actions]
    accounts = [Account(limit=a.forward_tokens) for a in asks]
    notes = _studied(engine, asks, accounts, manual, relevant)
    answers: list[dict[str, np.ndarray]] = [{} for _ in asks]
    for name, _, reads in nodes[:-1]:
        draws, places = [], []
        for i, (ask, account) in enumerate(zip(asks, accounts, strict=True)):
            prompt = _prompt(ask, notes[i], question_ids, answers[i], name, reads if edges == "listed" else ())
            turn = (
                len(_prompt(ask, notes[i], question_ids, answers[i], last, list(question_ids)))
                + len(question_ids[name])
                + piece_tokens
            )
            if account.left < len(prompt) + piece_tokens + _turn(turn, ask, legal):
                continue
            seed = seed_for(ask.seed, "question", name)
            draws.append(Draw(account=account, prompt=prompt, seed=seed, max_tokens=piece_tokens))
            places.append(i)
        for i, segment in zip(places, engine.sample(draws) if draws else [], strict=True):
            answers[i][name] = segment.ids if segment.stop == "length" else segment.ids[:-1]
    draws = []
    for i, (ask, account) in enumerate(zip(asks, accounts, strict=True)):
        prompt = _prompt(ask, notes[i], question_ids, answers[i], last, nodes[-1][2] if edges == "listed" else ())
        if account.left < _turn(len(prompt), ask, legal):  # nothing was asked: as a plain draw
            prompt = ask.prompt
        after = len(prompt) + max(map(len, legal)) + 1 if legal else 0
        room = min(engine.room(ask, account), account.left - len(prompt) - after)
        if room < 1:
            raise ValueError(
                f"a budget of {ask.forward_tokens} forward tokens has no room for an answer and its action: "
                f"give {2 * len(prompt) + after} or more"
            )
        draws.append(Draw(account=account, prompt=prompt, seed=ask.seed, max_tokens=int(room)))
    segments = engine.sample(draws)
    if actions:
        segments = [_matched(engine, d, s, actions, legal) for d, s in zip(draws, segments, strict=True)]
    return [Decoded(segment=s, account=a) for s, a in zip(segments, accounts, strict=True)]


def ordered(questions: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, tuple[str, ...]]]:
    """(name, text, names that it reads) of each question, none before those that it reads; the last one stays the last.
    Raises ValueError for a name that is missing, twice or of no question, for a circle, and for a question whose answer
    leads nowhere."""
    nodes: dict[str, tuple[str, tuple[str, ...]]] = {}
    for q in questions:
        name = str(q.get("name", ""))
        if not name or name in nodes or "ask" not in q or set(q) - {"name", "ask", "reads"}:
            raise ValueError(
                f"the question {dict(q)}: each has a name of its own and a text `ask`, and may have `reads`"
            )
        nodes[name] = (str(q["ask"]), tuple(q.get("reads", ())))
    if not nodes:
        raise ValueError("there are no questions: the last one of the list is the turn, so give one at least")
    for name, (_, reads) in nodes.items():
        if missing := [r for r in reads if r not in nodes]:
            raise ValueError(
                f"the question {name} reads {missing[0]}, which is none of {', '.join(nodes)}: correct its `reads`"
            )
    try:
        order = list(TopologicalSorter({name: reads for name, (_, reads) in nodes.items()}).static_order())
    except CycleError as e:
        raise ValueError(
            f"questions read each other in a circle ({' -> '.join(e.args[1])}): take one of these out of `reads`"
        ) from e
    last = list(nodes)[-1]
    reached, new = {last}, [last]
    while new:
        new = [r for name in new for r in nodes[name][1] if r not in reached]
        reached.update(new)
    if lost := [name for name in nodes if name not in reached]:
        raise ValueError(f"the answer to the question {lost[0]} leads nowhere: let {last} or one that it reads read it")
    return [(name, *nodes[name]) for name in order]


def _ids(engine: Engine, text: str) -> np.ndarray:
    return engine.ids(text) if engine.ids is not None else np.zeros(0, dtype=np.int64)


def _turn(context: int, ask: Ask, legal: Sequence[np.ndarray]) -> int:
    """Forward tokens of the turn behind so many tokens: an action that was matched is read behind them again."""
    return context + ask.max_tokens + (context + max(map(len, legal)) + 1 if legal else 0)


def _prompt(
    ask: Ask,
    notes: np.ndarray,
    question_ids: Mapping[str, np.ndarray],
    answers: Mapping[str, np.ndarray],
    name: str,
    reads: Sequence[str],
) -> np.ndarray:
    seen = [x for r in reads if r in answers for x in (question_ids[r], answers[r])]
    return np.concatenate([ask.prompt, notes, *seen, question_ids[name]])


def _studied(
    engine: Engine, asks: Sequence[Ask], accounts: Sequence[Account], manual: Sequence[str], relevant: str
) -> list[np.ndarray]:
    """[n] of the kept paragraphs for each ask; none where its budget does not reach."""
    none = np.zeros(0, dtype=np.int64)
    if not manual:
        return [none] * len(asks)
    pages, words = [_ids(engine, p) for p in manual], [_ids(engine, w) for w in ("yes", "no")]
    question = _ids(engine, relevant)
    rows = [(np.concatenate([p, question]), w) for p in pages for w in words]
    yes_no = engine.logp(rows).reshape(len(pages), 2)
    kept = np.concatenate([none, *(p for p, (yes, no) in zip(pages, yes_no, strict=True) if yes > no)])
    cost, out = sum(len(p) + len(w) for p, w in rows), []
    for ask, account in zip(asks, accounts, strict=True):
        short = account.left < cost + 2 * (len(ask.prompt) + len(kept) + ask.max_tokens)
        if not short:
            account.charge("policy", cost)
        out.append(none if short else kept)
    return out


def _matched(
    engine: Engine, draw: Draw, segment: Segment, actions: Sequence[str], legal: Sequence[np.ndarray]
) -> Segment:
    """The action that is spelled most alike what was said, as a turn; the first of equals."""
    text = engine.text(segment.ids).strip()
    if text in actions and segment.stop == "end":
        return segment
    place = int(np.argmax([SequenceMatcher(None, text, a).ratio() for a in actions]))
    ids = np.append(legal[place], engine.sampler.end_id)
    draw.account.charge("policy", len(draw.prompt) + len(ids))
    return Segment(ids=ids, role="model", logp=_each(engine, draw.prompt, ids), stop="end", version=segment.version)


def _each(engine: Engine, prompt: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """[n] log-prob of each of these ids behind the prompt."""
    sums = engine.logp([(prompt, ids[: i + 1]) for i in range(len(ids))])
    return np.diff(sums, prepend=0.0).astype(np.float32)
