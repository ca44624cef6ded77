"""A sequential public goods game: agents answer one after another; all profit from every answer, and each bears its own
cost.

MAC-SPGG, 2025, "Everyone Contributes! Incentivizing Strategic Cooperation in Multi-LLM Systems via Sequential
Public Goods Games" (arXiv 2508.02076; read from the abstract, which does not give the payoff). Agent i of n sees the
question and the answers of the agents before it, and contributes an answer of quality q_i at an effort e_i. It is paid

    u_i = (returns / n) sum_j q_j + synergy q_i (1 + mean_{j < i} q_j) - cost e_i^2 / 2

With q = e any real number, each best response is unique, positive, and grows with the contributions of the others:
there is one subgame-perfect equilibrium, in which every agent contributes. Without synergy and with a linear cost above
returns / n, contributing nothing is dominant. Here q_i is the verifier's score of the answer, and e_i the number of
words before the answer, divided by `most` (1 at most). Each agent has its own conversation; the roles are agent1,
agent2, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, missing, verify
from training.env import system

TOOLS = ""
BUDGETS = ("most",)
ENDS = "the last agent's answer"
GIVES = ("answered", "effort", "last", "reward_agent*")


def utilities(
    quality: Sequence[float], effort: Sequence[float], *, returns: float, synergy: float, cost: float, linear: bool
) -> list[float]:
    """u_i of each agent, in the order in which they contribute. linear: the cost is cost * e_i, as in the classic game."""
    shared = returns / len(quality) * sum(quality)
    out = []
    for i, (q, e) in enumerate(zip(quality, effort, strict=True)):
        before = sum(quality[:i]) / i if i else 0.0
        out.append(shared + synergy * q * (1 + before) - (cost * e if linear else cost * e * e / 2))
    return out


@dataclass(frozen=True)
class Goods:
    agents: int
    payoff: Mapping[str, Any]
    most: int
    observe: str
    instructions: str

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(f"agent{i + 1}" for i in range(self.agents))

    def _view(self, problem: Problem, answers: Sequence[str]) -> list[Message]:
        first = len(answers) - 1 if self.observe == "last" and answers else 0
        seen = [f"Agent {i + 1} says {a}." for i, a in enumerate(answers) if i >= first]
        question = Message(role="user", content=" ".join([problem.question, *seen]))
        return [*system(self.instructions), *problem.prompt[:-1], question]

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        state = {"problem": problem, "answers": [], "quality": [], "effort": [], "speaker": self.roles[0]}
        return state, self._view(problem, ())

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer = extract_answer(text)
        score = missing(text) if answer is None else verify(state["problem"], answer)
        if not isinstance(score, Scored):
            return [], True, score
        words = len((text if answer is None else text[: text.rfind("<answer>")]).split())
        state["quality"].append(score.value)
        state["effort"].append(min(words / self.most, 1.0))
        state["answers"].append("nothing" if answer is None else answer)
        done = len(state["answers"])
        if done < self.agents:
            state["speaker"] = self.roles[done]
            state["history"] = self._view(state["problem"], state["answers"])
            return [state["history"][-1]], False, None
        paid = utilities(state["quality"], state["effort"], **self.payoff)
        parts = {f"reward_{role}": u for role, u in zip(self.roles, paid, strict=True)} | {
            "answered": sum(a != "nothing" for a in state["answers"]) / self.agents,
            "effort": sum(state["effort"]) / self.agents,
            "last": score.value,
        }
        return [], True, Scored(value=sum(state["quality"]) / self.agents, parts={**score.parts, **parts})


def goods(
    *,
    agents: int = 3,
    returns: float = 1.5,
    synergy: float = 0.5,
    cost: float = 1.0,
    linear: bool = False,
    most: int = 16,
    observe: Literal["all", "last"] = "all",
    instructions: str = "",
) -> Goods:
    """The score is the mean quality; the reward of each agent is its own u. most: the number of words before the answer
    that count as an effort of 1; observe: whether an agent sees all answers before its own, or the last one."""
    if agents < 1 or most < 1:
        raise ValueError(f"goods: agents is {agents} and most {most}: both must be at least 1")
    payoff = {"returns": returns, "synergy": synergy, "cost": cost, "linear": linear}
    return Goods(agents, payoff, most, observe, instructions)
