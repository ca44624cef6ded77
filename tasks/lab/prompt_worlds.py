"""A small world of prompts: how often an answer is right depends on the prompt and on the words of the question. No model is trained.

Six prompts, one of them none, behind questions of four words of forty. An answer is right with log-odds g_p + sum over the words w of s_wp / 2,
all g and s standard normal and drawn anew for each seed: what a prompt is worth on average and what it is worth to a question vary alike. The
decoder of the recipe draws its log itself, of LOG questions, and then answers ASKED others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from synth.types import Sampling, UserError, seed_for
from tasks.lab.worlds import Place, Room
from tasks.planning.pieces import bind_all
from training.decode import Ask, Engine, Example
from training.types import Segment

VOCABULARY, WORDS, LOG, ASKED = 40, 4, 200, 1000
RIGHT, WRONG, ADVICE = VOCABULARY, VOCABULARY + 1, VOCABULARY + 2


@dataclass
class _Answerer:
    """A sampler whose turns are right as often as `chance` says; `chances` holds those of all that it has answered."""

    general: np.ndarray
    special: np.ndarray
    model: Any = None
    version: int = 0
    chances: list[float] = field(default_factory=list)

    def chance(self, prompt: np.ndarray) -> float:
        """prompt: WORDS ids of words, and that of a prompt behind them if there is one."""
        which = int(prompt[WORDS] - ADVICE) if len(prompt) > WORDS else 0
        logit = self.general[which] + self.special[prompt[:WORDS], which].sum() / 2
        return float(1 / (1 + np.exp(-logit)))

    def open(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> Any:
        answerer = self

        class Session:
            def generate(self, sampling: Sampling) -> list[Segment]:
                return [answerer.turn(p, s) for p, s in zip(prompts, seeds, strict=True)]

        return Session()

    def turn(self, prompt: np.ndarray, seed: int) -> Segment:
        p = self.chance(prompt)
        self.chances.append(p)
        right = np.random.default_rng(seed).random() < p
        ids = np.array([RIGHT if right else WRONG], dtype=np.int64)
        return Segment(ids=ids, role="model", logp=np.zeros(1, dtype=np.float32), stop="end")


class _Reader(Engine):
    bytes_per_token = 0  # type: ignore[assignment]


def advised() -> Place:
    """See the head of this file."""
    return Place((), lambda room: None, _measure)


def alike() -> Place:
    """As `advised`, with all s 0: a prompt is worth as much to every question, and choosing for each can only lose."""
    return Place((), lambda room: None, partial(_measure, special=0.0))


def _measure(room: Room, *, special: float = 1.0) -> dict[str, float]:
    """wanted: probability of the right answer behind the prompts that were chosen, mean over questions; forward_tokens: of an answer.
    oracle, fixed: of the best prompt for each question, and of the one that is best on average over these questions."""
    stage = room.kept["knobs"]["evaluate"] if "knobs" in room.kept else None
    decoders = bind_all(stage.pieces, stage.params, stage.settings)["decoders"] if stage else ()
    if not decoders or decoders[0].piece != "decode/prompt_choice":
        raise UserError("the world advised is for the decoder prompt_choice: name it first in evaluate.decoders")
    from training.decode.prompt_choice import PROMPTS

    decode = decoders[0]
    texts = list(decode.keywords.get("prompts", PROMPTS))
    rng = np.random.default_rng(seed_for(room.seed, "advised"))
    answerer = _Answerer(rng.normal(size=len(texts)), special * rng.normal(size=(VOCABULARY, len(texts))))
    engine = _Reader(
        sampler=answerer,
        text=lambda ids: " ".join(f"w{i}" for i in ids[:WORDS]),
        said=lambda ids: str(int(ids[0])),
        ids=lambda text: np.array([ADVICE + texts.index(text)]),
    )
    queries = [rng.choice(VOCABULARY, WORDS, replace=False) for _ in range(LOG + ASKED)]
    right, wrong = np.array([RIGHT]), np.array([WRONG])
    fitted = decode.fit(engine, [Example(prompt=q, chosen=right, rejected=wrong) for q in queries[:LOG]])
    answerer.chances.clear()
    asks = [Ask(prompt=q, seed=seed_for(room.seed, "ask", i), max_tokens=1) for i, q in enumerate(queries[LOG:])]
    done = decode(engine, asks, fitted)
    chances = list(answerer.chances)
    every = np.array([[answerer.chance(np.append(q, ADVICE + k)) for k in range(len(texts))] for q in queries[LOG:]])
    return {
        "wanted": float(np.mean(chances)),
        "forward_tokens": float(np.mean([d.account.spent for d in done])),
        "oracle": float(every.max(1).mean()),
        "fixed": float(every.mean(0).max()),
    }


WORLDS = (advised, alike)
