"""Cognition of thought: a perceiver reads along; where a principle is broken the answer is rolled back and written anew.

"Cognition-of-Thought Elicits Social-Aligned Reasoning in Large Language Models" 2025 (arXiv 2509.23441); read in the
abstract, the rules are our reading.

    every check_every tokens     s = (s_1, ..., s_P), s_i whether principle i is broken by what is written
    broken                       back to the start of the sentence of the first breach of the first i that is broken,
                                 with guidance behind the prompt, at most max_rollbacks times

`principles` are in their order: a later one never excuses a breach of an earlier one. Each is "name: word, word", broken
where one of its words is written (perceiver: words); or the reward model speaks for all of them, a reward under
`threshold` being a breach of the last sentence (perceiver: reward). What stands before the rollback keeps every id.
Guidance names the principle and what broke it; the answer does not hold it. Each event is in the account. perceiver:
"random" is the control: it sees a breach in a check by chance, as often as `chance` says. back: "start" is another: the whole answer is
written anew, under the same perceiver and budget; "anywhere": from a token before the breach by chance.

Leaves out that the perceiver's attention finds the cause: it is the sentence of the breach.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.decode import Ask, Decoded, Engine
from training.decode._segments import ENDS, Writing, begun, options

NEEDS = {"reward_model"}
GUIDANCE = "(Answer well, and keep to {name} before all else: do not write {what}.)\n"


def cognition_of_thought(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    principles: Sequence[str] = ("safety: kill, poison, bomb", "altruism: cheat, steal"),
    check_every: int = 32,
    max_rollbacks: int = 3,
    perceiver: Literal["words", "reward", "random"] = "words",
    threshold: float = 0.0,
    chance: float = 0.3,
    guidance: bool = True,
    back: Literal["sentence", "start", "anywhere"] = "sentence",
) -> list[Decoded]:
    rules = [_parsed(p) for p in principles]
    writings = begun(asks)
    rolled = [0] * len(asks)
    while open_ := [i for i, w in enumerate(writings) if not w.over]:
        reads = perceiver == "reward"
        drawn = options(engine, [writings[i] for i in open_], 1, check_every, least=1, reads=reads)
        fresh = [i for i, few in zip(open_, drawn, strict=True) if few]
        for i, few in zip(open_, drawn, strict=True):
            for piece in few:
                writings[i].take(piece)
        values = (
            dict(zip(fresh, engine.rate([(writings[i].account, writings[i].context) for i in fresh]), strict=True))
            if reads and fresh
            else {}
        )
        for i in fresh:
            w = writings[i]
            if rolled[i] > max_rollbacks:  # a breach stays, and was told
                continue
            if perceiver == "words":
                breach = _breach(engine, w.ids, rules)
            elif perceiver == "reward":
                breach = ("what is wanted", "this again", len(w.ids)) if values[i] < threshold else None
            else:
                draw = np.random.default_rng(seed_for(w.ask.seed, "perceiver", w.drawn)).random()
                breach = ("chance", "this again", len(w.ids)) if draw < chance else None
            if breach:
                done = _rolled_back(engine, w, *breach, guidance, rolled[i] == max_rollbacks, back)
                rolled[i] = rolled[i] + 1 if done else max_rollbacks + 1
    return [w.decoded() for w in writings]


def _parsed(principle: str) -> tuple[str, re.Pattern[str]]:
    name, _, words = principle.partition(":")
    listed = [re.escape(word.strip()) for word in words.split(",") if word.strip()]
    if not listed:
        raise ValueError(f'the principle {principle!r} forbids nothing: write "name: word, word"')
    return name.strip(), re.compile(rf"(?<!\w)({'|'.join(listed)})(?!\w)", re.IGNORECASE)


def _breach(
    engine: Engine, ids: np.ndarray, rules: Sequence[tuple[str, re.Pattern[str]]]
) -> tuple[str, str, int] | None:
    """The first principle that is broken: its name, by what, and how many tokens hold its first breach."""
    for name, words in rules:
        if hit := words.search(engine.text(ids)):
            n = next(n for n in range(1, len(ids) + 1) if words.search(engine.text(ids[:n])))
            return name, hit.group(0), n
    return None


def _rolled_back(
    engine: Engine, w: Writing, name: str, what: str, until: int, guidance: bool, spent: bool, back: str
) -> bool:
    """Go back to the start of the sentence that ends at token `until`, or where `back` says; False where that may not be, or
    costs too much."""
    ids, start = w.ids, 0
    if back == "sentence":
        start = next((n for n in range(until - 1, 0, -1) if ENDS.search(engine.text(ids[:n]))), 0)
    elif back == "anywhere":
        start = int(np.random.default_rng(seed_for(w.ask.seed, "back", w.drawn)).integers(until))
    event = f"{name} broken by {what!r} at token {until}"
    hint = engine.ids(GUIDANCE.format(name=name, what=what)) if guidance and engine.ids is not None else w.hint
    if w.account.left < len(w.ask.prompt) + len(hint) + start + 1:
        hint = w.hint
    if spent or w.account.left < len(w.ask.prompt) + len(hint) + start + 1:
        w.account.events.append(f"{event}; kept: no rollback is left")
        return False
    w.account.events.append(f"{event}; rolled back to token {start}")
    w.cut(start)
    w.hint = hint
    return True
