"""Rates thoughts in small units, and shifts to the answer's F1 as training goes on.

"Atom-Searcher: Enhancing Agentic Deep Research via Fine-Grained Atomic Thought Reward", 2025 (arXiv 2508.12800).

    R = a_t R_atom + (1 - a_t) F1,        a_t = alpha (1 - min(1, t / steps)),        R = format if the form is broken
    R_atom = mean over the rollout's units of g(unit)
    g = share of the unit's words that occur in the question or in earlier search results; 0 if its words were a unit
    before

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. The form: every turn of the model begins with
<think>, which holds units <name>text</name> (the model chooses the names) and nothing else, at least one; the last turn
answers. F1 is that of `answer_f1`. t is the number of steps so far: `state["step"]` counts them. With `hand_over` off
a_t stays alpha. The rule g replaces the paper's reasoning reward model, which rates units by reading them. The rule
sees whether a thought rests on what was read, but not whether it makes progress, so copying can satisfy it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from synth.types import Message
from synth.verify import extract_answer
from synth.verify.exact import normalise
from training.rl.reward.answer_f1 import best_f1
from training.types import Group, Rewards, Rollout

EXAMPLES = ("<think><plan>what is it</plan></think>", "<think><plan>what</plan><observation>z z</observation></think>")
_THINK = re.compile(r"\s*<think>([^\x00]*?)</think>")
_UNIT = re.compile(r"\s*<([a-z_]{1,30})>([^<]*)</\1>")


def atomic_thought(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    alpha: float = 0.5,
    steps: int = 110,
    hand_over: bool = True,
    format: float = -1.0,
) -> Rewards:
    if steps < 1 or not 0 <= alpha <= 1:
        raise ValueError(f"atomic_thought: steps is {steps} and alpha {alpha}: at least 1, and between 0 and 1")
    step = state.get("step", 0)
    state["step"] = step + 1
    weight = alpha * (1 - min(1.0, step / steps)) if hand_over else alpha
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = []
        for rollout in group.rollouts:
            rated, answer = ratings(rollout), extract_answer(rollout.text)
            if rated is None or answer is None:
                paid.append(format)
            else:
                paid.append(weight * np.mean(rated) + (1 - weight) * best_f1(rollout.problem, answer))
        out.append(np.where(np.isnan(r), np.nan, np.array(paid, dtype=np.float64)))
    return out


def ratings(rollout: Rollout) -> list[float] | None:
    """g of each unit in order; None if a turn of the model breaks the form."""
    messages = rollout.info.get("messages") or (
        Message(role="user", content=rollout.problem.question),
        Message(role="assistant", content=rollout.text),
    )
    read, before, rated = set[str](), set[str](), list[float]()
    for message in messages:
        if message.role != "assistant":
            read.update(normalise(message.content).split())
            continue
        texts = units(message.content)
        if not texts:
            return None
        for text in texts:
            words = normalise(text).split()
            normal_text = " ".join(words)
            rated.append(0.0 if normal_text in before or not words else sum(w in read for w in words) / len(words))
            before.add(normal_text)
    return rated or None


def units(turn: str) -> list[str]:
    """The texts of the units at the start of a turn; none if its form is broken."""
    think = _THINK.match(turn)
    if think is None:
        return []
    inside, at, texts = think[1], 0, []
    while unit := _UNIT.match(inside, at):
        texts.append(unit[2])
        at = unit.end()
    return texts if not inside[at:].strip() else []
