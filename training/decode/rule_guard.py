"""WALL-E 2.0: rules learned from what a world model mispredicted veto the actions of an agent, who then thinks again.

"WALL-E 2.0: World Alignment by NeuroSymbolic Learning improves World Model-based LLM Agents" 2025 (arXiv 2504.15785).

    a rule   (action, "needs", word)   the action fails where the word is not there       (action, "fails with", word)   where it is
    kept     greedy cover of the mispredicted failures by rules that no success in the log contradicts, at most `max_rules`

The log are preference pairs read as transitions: what the chosen answer does in the state that the prompt tells worked, what the
rejected one does failed. The world model is the frozen model, asked `ask` behind the action: success where p(yes) > p(no); with
ask: "" it trusts every action that it proposes. Words of states and actions are what rules are made of; a rule covers `least`
failures or more, and a word is needed only where the action has succeeded with it as often. At use an action is drawn; where a rule
fires, its sentence is read behind the prompt and another one is drawn, up to `replan_max` times, then the last one is played.
No weight changes. rules: "random" is the control, as many rules of words by chance.

Leaves out a language model that writes rules as code, graphs of knowledge and of scenes, and search over the corrected world model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.decode import Account, Ask, Decoded, Draw, Engine, Example
from training.types import Segment

Rule = tuple[str, str, str]
NEEDS_WORD, FAILS_WITH = "needs", "fails with"
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """rules: in the order in which they were kept; covered: share of the mispredicted failures that they explain."""

    rules: tuple[Rule, ...]
    covered: float


@dataclass(frozen=True)
class _Seen:
    """One transition: the words of its state and of its action, whether it worked, and whether that was foreseen."""

    state: frozenset[str]
    action: frozenset[str]
    worked: bool
    foreseen: bool


def fires(rule: Rule, state: frozenset[str], action: frozenset[str]) -> bool:
    """Whether the rule says that the action fails in this state."""
    who, how, word = rule
    return who in action and (word not in state if how == NEEDS_WORD else word in state)


def rule_guard(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    max_rules: int = 20,
    least: int = 2,
    replan_max: int = 3,
    ask: str = "\nDoes this work? ",
    rules: Literal["learned", "random"] = "learned",
    seed: int = 0,
) -> list[Decoded]:
    accounts, states = [Account(limit=a.forward_tokens) for a in asks], [_words(engine.text(a.prompt)) for a in asks]
    last: dict[int, Segment] = {}
    told: list[list[Rule]] = [[] for _ in asks]
    for turn in range(replan_max + 1):
        draws, places = [], []
        for i, (one, account) in enumerate(zip(asks, accounts, strict=True)):
            if turn and not told[i]:
                continue
            prompt = np.concatenate([one.prompt, *(_ids(engine, _sentence(r)) for r in dict.fromkeys(told[i]))])
            room = one.max_tokens if turn else engine.room(one, account)
            if turn and account.left < len(prompt) + room:  # the budget has no room for another: the last one is played
                continue
            seed_ = seed_for(one.seed, "again", turn) if turn else one.seed
            draws.append(Draw(account=account, prompt=prompt, seed=seed_, max_tokens=room))
            places.append(i)
        for i, segment in zip(places, engine.sample(draws) if draws else [], strict=True):
            last[i] = segment
            fired = next((r for r in fitted.rules if fires(r, states[i], _words(engine.said(segment.ids)))), None)
            if fired is None:
                told[i] = []
            else:
                told[i].append(fired)
                accounts[i].events.append(f"vetoed: {_sentence(fired).strip()}")
    return [Decoded(segment=last[i], account=a) for i, a in enumerate(accounts)]


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    max_rules: int = 20,
    least: int = 2,
    replan_max: int = 3,
    ask: str = "\nDoes this work? ",
    rules: Literal["learned", "random"] = "learned",
    seed: int = 0,
) -> Rules:
    """The rules that the log of the pairs gives. Raises ValueError for bounds below 1, and for a world model that is asked in
    words and reads none."""
    if max_rules < 1 or least < 1 or replan_max < 0:
        raise ValueError(
            f"max_rules is {max_rules}, least {least} and replan_max {replan_max}: the first two are 1 or more, the last 0 or more"
        )
    if ask and engine.ids is None:
        raise ValueError('this model reads ids alone and cannot be asked whether an action works: set ask to ""')
    log = _logged(engine, pairs, ask)
    kept = induced(log, max_rules, least)
    missed = [t for t in log if not t.worked and not t.foreseen]
    if rules == "random":
        rng = np.random.default_rng(seed_for(seed, "rules"))
        actions, words = (sorted(set().union(*(getattr(t, part) for t in log))) for part in ("action", "state"))
        kept = [(str(rng.choice(actions)), how, str(rng.choice(words))) for _, how, _ in kept]
    explained = sum(any(fires(r, t.state, t.action) for r in kept) for t in missed)
    return Rules(rules=tuple(kept), covered=explained / len(missed) if missed else 0.0)


def _logged(engine: Engine, pairs: Sequence[Example], ask: str) -> list[_Seen]:
    sides = [(p.prompt, side, works) for p in pairs for side, works in ((p.chosen, True), (p.rejected, False))]
    hopes = [True] * len(sides)
    if ask and sides:
        assert engine.ids is not None
        prompts = [np.concatenate([prompt, side, engine.ids(ask)]) for prompt, side, _ in sides]
        yes_no = engine.logp([(a, engine.ids(w)) for a in prompts for w in ("yes", "no")]).reshape(-1, 2)
        hopes = [bool(yes > no) for yes, no in yes_no]
    return [
        _Seen(_words(engine.text(prompt)), _words(engine.said(side)), works, works == hope)
        for (prompt, side, works), hope in zip(sides, hopes, strict=True)
    ]


def induced(log: Sequence[_Seen], max_rules: int, least: int) -> list[Rule]:
    """Rules that no success contradicts, each time the one that covers most of the mispredicted failures that are left; of
    equals what is needed, then the first by spelling."""
    missed = [t for t in log if not t.worked and not t.foreseen]
    worked = [t for t in log if t.worked]
    words = set().union(*(t.state for t in log)) if log else set()
    covers: dict[Rule, set[int]] = {}
    for who in sorted(set().union(*(t.action for t in missed)) if missed else set()):
        mine = [t.state for t in worked if who in t.action]
        for how in (NEEDS_WORD, FAILS_WITH):
            for word in sorted(words):
                rule = (who, how, word)
                support = sum((word in s) for s in mine) if how == NEEDS_WORD else least
                if support < least or any(fires(rule, t.state, t.action) for t in worked):
                    continue
                covers[rule] = {i for i, t in enumerate(missed) if fires(rule, t.state, t.action)}
    kept: list[Rule] = []
    while covers and len(kept) < max_rules:
        best = min(covers, key=lambda r: (-len(covers[r]), r[1] != NEEDS_WORD, r))
        taken = covers[best]
        if len(taken) < least:
            break
        kept.append(best)
        covers = {r: left for r, c in covers.items() if (left := c - taken)}
    return kept


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _sentence(rule: Rule) -> str:
    return f" {' '.join(rule)}.\n"


def _ids(engine: Engine, text: str) -> np.ndarray:
    return engine.ids(text) if engine.ids is not None else np.zeros(0, dtype=np.int64)
