"""A seller bargains with a buyer who follows a rule that the seller does not know. Problems of the family bargains.

Utterances judged by their effect: Sotopia-RL, Yu et al. 2025, "Sotopia-RL: Reward Design for Social
Intelligence" (arXiv 2508.03905). Strategies that a fixed actor carries out: Liu et al. 2025, "EPO: Explicit Policy
Optimization for Strategic Reasoning in LLMs via Reinforcement Learning" (arXiv 2502.12486). Judges and actors are
language models there, and programs here.

A turn is `<say>act</say>`: hold (the buyer adds its raise, or leaves when it has none left), accept (the sale),
flatter, insult (costs a raise), ask (how many raises are left). With `strategy` it is `<strategy>firm | close | warm |
hard | probe</strategy>` and an actor turns the strategy into the act. At the end the episode gets

    goal = profit / best profit, in [0, 1]        relationship = 1/2 + flatter / 4 - insult / 2, in [0, 1]
    knowledge = [asked]

and its score is goal. `judge` then rewards every turn: a_t^d in [0, 1] is the share of dimension d that is lost if the
same turns are played without turn t. It is exact because the buyer follows a rule.

    share      reward of turn t = sum_d w_d a_t^d G^d / sum_d w_d        critical   1 where a_t^goal >= `least`, else 0
    none

Parts: the three dimensions, `profit`, `deal`, `turns`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from synth.types import Message, Problem, Score, Scored
from training.env import system

TOOLS = "say (hold, accept, flatter, insult, ask)"
BUDGETS = ("turns",)
ENDS = "a sale; a buyer who leaves; `turns` turns; a turn that is no act"
GIVES = {"goal": "", "relationship": "", "knowledge": "", "profit": "", "deal": "", "turns": "", "turn_reward": "judge"}
DIMENSIONS = ("goal", "relationship", "knowledge")
ACTS = {"firm": "hold", "close": "accept", "warm": "flatter", "hard": "insult", "probe": "ask"}
_TEXT = re.compile(
    r"(?=.*\bcost you (\d+))(?=.*\boffers (\d+))(?=.*\badds (\d+))(?=.*\bat most (\d+) times).*", re.DOTALL
)
_SAY = re.compile(r"<(say|strategy)>\s*(\w+)\s*</\1>")


@dataclass(frozen=True)
class Sale:
    """The end of a bargain that was played. over: there was a sale, or the buyer left."""

    said: str
    over: bool
    deal: bool
    profit: int
    dimensions: tuple[float, float, float]


def play(acts: Sequence[str], cost: int, offer: int, step: int, raises: int) -> Sale:
    """Play these acts against a buyer with this rule; `said` is the buyer's last word."""
    best = max(1, offer + step * raises - cost)
    left, flattered, insulted, revealed = raises, 0, 0, False
    reply, over, deal = f"I offer {offer}.", False, False
    for act in acts:
        if act in ("hold", "insult"):
            over, insulted = left == 0, insulted + (act == "insult")
            left = max(0, left - 1)
            if act == "hold" and not over:
                offer += step
            reply = "I leave." if over else f"I offer {offer}."
        elif act == "accept":
            over, deal, reply = True, True, "Done."
        elif act == "flatter":
            flattered, reply = flattered + 1, f"Thank you. I offer {offer}."
        else:
            revealed, reply = True, f"I can move {left} times. I offer {offer}."
        if over:
            break
    profit = offer - cost if deal else 0
    kept = min(1.0, max(0.0, 0.5 + flattered / 4 - insulted / 2))
    return Sale(reply, over, deal, profit, (min(1.0, max(0.0, profit / best)), kept, float(revealed)))


@dataclass(frozen=True)
class Bargain:
    turns: int
    strategy: bool
    judge: Literal["none", "share", "critical"]
    weights: tuple[float, ...]
    least: float
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        match = _TEXT.fullmatch(problem.question)
        if match is None:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'bargain', but its question describes no buyer"
            )
        rule = tuple(map(int, match.groups()))
        told = f"You sell what cost you {rule[0]}. The buyer says: I offer {rule[1]}."
        return {"rule": rule, "acts": [], "calls": 0}, [
            *system(self.instructions),
            *problem.prompt[:-1],
            Message(role="user", content=told),
        ]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        match = _SAY.search(text)
        act = "" if match is None else ACTS.get(match[2], "") if self.strategy else match[2]
        if act not in ACTS.values() or (match is not None and (match[1] == "strategy") != self.strategy):
            return [], True, self._ended(state, malformed=1.0)
        state["acts"].append(act)
        state["calls"] += 1
        sale = play(state["acts"], *state["rule"])
        if sale.over or len(state["acts"]) >= self.turns:
            return [], True, self._ended(state)
        return [Message(role="user", content=sale.said)], False, None

    def _ended(self, state: dict, **parts: float) -> Scored:
        acts = state["acts"]
        sale = play(acts, *state["rule"])
        if self.judge != "none":
            shares = [self._shares(acts, t, state["rule"]) for t in range(len(acts))]
            total = sum(self.weights)
            paid = [
                float(a[0] >= self.least)
                if self.judge == "critical"
                else sum(w * x * g for w, x, g in zip(self.weights, a, sale.dimensions, strict=True)) / total
                for a in shares
            ]
            state["turn_rewards"] = [*paid, *([0.0] if parts else [])]
        known = dict(zip(DIMENSIONS, sale.dimensions, strict=True)) | {
            "profit": float(sale.profit),
            "deal": float(sale.deal),
        }
        return Scored(value=sale.dimensions[0], parts={**known, "turns": float(len(acts)), **parts})

    @staticmethod
    def _shares(acts: Sequence[str], t: int, rule: tuple[int, ...]) -> list[float]:
        """a_t^d of each dimension."""
        whole, without = play(acts, *rule).dimensions, play([*acts[:t], *acts[t + 1 :]], *rule).dimensions
        return [max(0.0, a - b) / a if a > 0 else 0.0 for a, b in zip(whole, without, strict=True)]


def bargain(
    *,
    turns: int = 6,
    strategy: bool = False,
    judge: Literal["none", "share", "critical"] = "none",
    weights: Sequence[float] = (1.0, 1.0, 1.0),
    least: float = 0.5,
    instructions: str = "",
) -> Bargain:
    """At most `turns` turns. `weights` of goal, relationship and knowledge."""
    if len(weights) != len(DIMENSIONS) or sum(weights) <= 0:
        raise ValueError(
            f"bargain: weights {list(weights)} must be one for each of {', '.join(DIMENSIONS)}, and not all 0"
        )
    return Bargain(turns, strategy, judge, tuple(weights), least, instructions)
