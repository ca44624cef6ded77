"""A prompt for each question, chosen by a reward model of logged results: no model is asked which one.

Prompt-OIRL: Sun, Hüyük and van der Schaar 2023, "Query-Dependent Prompt Evaluation and Optimization with Offline Inverse RL" (arXiv
2309.06553); it is the offline evaluation of prompts that Sun 2023 (arXiv 2310.06147) argues for.

    r(q, p) = sigmoid(b_p + w_p . x(q))         x(q) [dim]: 1 in the bucket of each different word of q, divided by its norm
    w_p, b_p      maximise  sum_i [y_i log r + (1 - y_i) log(1 - r)] - l2/2 |w_p|^2, over the logged (q_i, y_i) of prompt p, with half a
                  success and half a failure of no words besides, so that where words say nothing r = (right + 1/2) / (logged + 1)
    p(q) = argmax_p r(q, p),  of equals the first

Here the log is made once, from preference pairs whose chosen answer is right: each of `prompts` stands behind each prompt of theirs,
`tries` answers are drawn, and one is right that agrees with the chosen one. At use the chosen text stands behind the prompt, and one
answer is drawn. choose: "average" is the control, the prompt with the largest share of right answers in the same log, whatever the
question; "random" draws one. `espalier prompts` does the same for logs of your own, without a model.

Leaves out embeddings of questions and trees over them: the model is linear in words. The prompts are given, none is written anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.decode import Account, Ask, Decoded, Draw, Engine, Example

PROMPTS = (
    "",
    "Let's think step by step.\n",
    "Let's work backwards from what is asked.\n",
    "Let's check each part.\n",
    "In few words:\n",
    "In other words, the question is this.\n",
)
Choose = Literal["query", "average", "random"]
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class PromptValues:
    """What a log says of prompts.

    means    [P] smoothed share of right answers of each
    logged   [P] how many answers of each the log has
    weights  [P, dim + 1] w_p, and b_p last
    """

    means: tuple[float, ...]
    logged: tuple[int, ...]
    weights: np.ndarray

    def of(self, query: str) -> np.ndarray:
        """[P] r(q, p)."""
        return 1 / (1 + np.exp(-self.weights @ _read(query, self.weights.shape[1] - 1)))

    def pick(self, query: str, choose: Choose = "query") -> int:
        """The number of the prompt for a question: the best for it, or the best on average."""
        return int(np.argmax(self.of(query) if choose == "query" else self.means))


def learned(log: Sequence[tuple[str, int, float]], prompts: int, *, l2: float = 1.0, dim: int = 512) -> PromptValues:
    """What a log says. log: (question, number of the prompt, result from 0 to 1). Raises ValueError for fewer than two prompts, for one
    that was never logged, and for a result that is no share."""
    if prompts < 2:
        raise ValueError(f"there are {prompts} prompts to choose among: give 2 or more")
    if l2 <= 0 or dim < 1:
        raise ValueError(f"l2 is {l2} and dim {dim}: the first is above 0, the second 1 or more")
    rows: list[list[tuple[np.ndarray, float]]] = [[] for _ in range(prompts)]
    read: dict[str, np.ndarray] = {}
    for query, which, result in log:
        if not 0 <= result <= 1:
            raise ValueError(f"a result of prompt {which + 1} is {result}: results lie between 0 (wrong) and 1 (right)")
        if query not in read:
            read[query] = _read(query, dim)
        rows[which].append((read[query], float(result)))
    if empty := [i + 1 for i, mine in enumerate(rows) if not mine]:
        raise ValueError(f"prompt {empty[0]} has no result in the log: leave it out, or log some")
    results = [np.array([y for _, y in mine]) for mine in rows]
    return PromptValues(
        means=tuple(float((y.sum() + 0.5) / (len(y) + 1)) for y in results),
        logged=tuple(len(y) for y in results),
        weights=np.stack(
            [_logistic(np.array([x for x, _ in mine]), y, l2) for mine, y in zip(rows, results, strict=True)]
        ),
    )


def _read(query: str, dim: int) -> np.ndarray:
    """[dim + 1] x(q), and 1."""
    x = np.zeros(dim + 1)
    for word in set(_WORD.findall(query.lower())):
        x[seed_for("word", word) % dim] = 1.0
    x /= max(float(np.linalg.norm(x)), 1.0)
    x[dim] = 1.0
    return x


def _logistic(x: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    """[d] by Newton's method. x [n, d], the last column 1 and not held back by l2."""
    n, d = x.shape
    nothing = np.zeros((2, d))
    nothing[:, -1] = 1.0
    x, y = np.concatenate([x, nothing]), np.concatenate([y, [0.0, 1.0]])
    weight = np.concatenate([np.ones(n), [0.5, 0.5]])
    held = np.full(d, l2)
    held[-1] = 0.0
    w = np.zeros(d)

    def loss(w: np.ndarray) -> float:
        z = x @ w
        return float(weight @ (np.logaddexp(0, z) - y * z) + held @ w**2 / 2)

    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ w))
        slope = x.T @ (weight * (p - y)) + held * w
        if np.abs(slope).max() < 1e-10:
            break
        step = np.linalg.solve((x.T * (weight * p * (1 - p))) @ x + np.diag(held), slope)
        size = 1.0
        while loss(w - size * step) > loss(w) + 1e-12 and size > 1e-6:
            size /= 2
        w = w - size * step
    return w


def prompt_choice(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    prompts: Sequence[str] = PROMPTS,
    choose: Choose = "query",
    tries: int = 1,
    l2: float = 1.0,
    dim: int = 512,
    seed: int = 0,
) -> list[Decoded]:
    accounts, draws = [Account(limit=a.forward_tokens) for a in asks], []
    for ask, account in zip(asks, accounts, strict=True):
        if choose == "random":
            which = int(np.random.default_rng(seed_for(ask.seed, "prompt")).integers(len(prompts)))
        else:
            which = fitted.pick(engine.text(ask.prompt), choose)
        whole = _behind(engine, ask.prompt, prompts[which])
        room = engine.room(
            Ask(prompt=whole, seed=0, max_tokens=ask.max_tokens, forward_tokens=ask.forward_tokens), account
        )
        account.events.append(f"prompt {which + 1}: {prompts[which].strip() or '(none)'}")
        draws.append(Draw(account=account, prompt=whole, seed=ask.seed, max_tokens=room))
    return [Decoded(segment=s, account=a) for s, a in zip(engine.sample(draws), accounts, strict=True)]


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    prompts: Sequence[str] = PROMPTS,
    choose: Choose = "query",
    tries: int = 1,
    l2: float = 1.0,
    dim: int = 512,
    seed: int = 0,
) -> PromptValues:
    """Draws the log, and learns from it. Raises ValueError for fewer than two prompts or less than one try."""
    if tries < 1 or len(prompts) < 2:
        raise ValueError(
            f"there are {len(prompts)} prompts and {tries} tries: give 2 prompts or more, and 1 try or more"
        )
    longest = max(max(len(p.chosen), len(p.rejected)) for p in pairs)
    trials = [(p, k, t) for p in pairs for k in range(len(prompts)) for t in range(tries)]
    draws = [
        Draw(
            account=Account(),
            prompt=_behind(engine, p.prompt, prompts[k]),
            seed=seed_for(seed, "prompts", i // (len(prompts) * tries), k, t),
            max_tokens=longest,
        )
        for i, (p, k, t) in enumerate(trials)
    ]
    log = [
        (engine.text(p.prompt), k, float(engine.said(s.ids) == engine.said(p.chosen)))
        for (p, k, _), s in zip(trials, engine.sample(draws), strict=True)
    ]
    return learned(log, len(prompts), l2=l2, dim=dim)


def _behind(engine: Engine, prompt: np.ndarray, text: str) -> np.ndarray:
    return np.concatenate([prompt, engine.ids(text)]) if engine.ids is not None and text else prompt
