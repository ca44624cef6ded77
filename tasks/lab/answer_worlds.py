"""Decoders on a task of the project: `countdown` of tasks/lab/starts.py, whose policy is right in about one draw of four, with some thirty
tokens of working and answer.

For each seed the policy answers its TRAINING problems four times each. From these draws, which the verifier has scored, come preference
pairs (a right and a wrong answer of one problem, PAIRS at most) and a judge: a copy of the policy that learns to say after a conversation,
and after the beginning of one, whether the answer is right in the end; its reward is the probability of that. Every side of a protocol
has the same pairs and the same judge. What is measured, on the problems of the test split, TRIES answers of each:

    solved          share of right answers
    forward_tokens  of all models, an answer; what a decoder has learned before is not counted

Equal compute: the first decoder that a recipe ships answers as it is shipped. Any other one that a side names is its rival and may spend,
question by question, what that one has spent there (one whole answer at least). A side whose recipe has the stage `prefer` learns from
the same pairs there, by its own loss, and answers with one draw.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache, partial
from typing import Any

import numpy as np
from torch import nn

from synth.types import PreferencePair, Problem, Sampling, Scored, seed_for
from synth.verify import extract_answer, verify
from synth.verify.exact import normalise
from tasks.evaluation.decoding import examples
from tasks.lab import starts
from tasks.lab.label_worlds import NOTHING
from tasks.lab.solution_worlds import kept_policy
from tasks.lab.worlds import Place, Room, plans, run_stage
from tasks.planning.pieces import bind
from tasks.planning.resolve import read_recipe
from training.decode import Ask, Decoded, Engine
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.rollout.torch_sampler import TorchSampler

TRAINING, DRAWS, PAIRS, TRIES, JUDGED = 256, 4, 60, 4, 200  # JUDGED: steps of the judge


def _prompt(p: Problem) -> np.ndarray:
    return np.array(starts.start("countdown").renderer.prompt(list(p.prompt)), dtype=np.int64)


def _right(p: Problem, ids: np.ndarray) -> bool:
    answer = extract_answer(starts.start("countdown").renderer.decode(ids))
    score = verify(p, answer) if answer is not None else None
    return isinstance(score, Scored) and score.value == 1


def _drawn(model: nn.Module, problems: Sequence[Problem], n: int, *seed: Any) -> list[list[np.ndarray]]:
    """n answers of a model to each problem, as ids."""
    here = starts.start("countdown")
    prompts = [_prompt(p) for p in problems for _ in range(n)]
    session = TorchSampler(model, here.renderer.end_id).open(prompts, [seed_for(*seed, i) for i in range(len(prompts))])
    drawn = [s.ids for s in session.generate(Sampling(temperature=1.0, max_tokens=here.size.turn))]
    return [drawn[i : i + n] for i in range(0, len(drawn), n)]


@lru_cache(maxsize=32)
def _known(seed: int) -> tuple[list[PreferencePair], list[Row]]:
    """What every side of a seed knows: preference pairs, and the rows that a judge learns from."""
    here = starts.start("countdown")
    problems = here.world.training[:TRAINING]
    rng = np.random.default_rng(seed_for(seed, "answer worlds"))
    yes, no = _verdicts()
    pairs, rows = [], []
    drawn = _drawn(here.base, problems, DRAWS, seed, "known")
    for i in rng.permutation(len(problems)):
        good = [_right(problems[i], ids) for ids in drawn[i]]
        for ids, right in zip(drawn[i], good, strict=True):
            for end in (len(ids), int(rng.integers(1, len(ids) + 1))):
                whole = np.concatenate([_prompt(problems[i]), ids[:end], [yes if right else no]])
                rows.append(Row(ids=whole, trainable=np.arange(len(whole)) == len(whole) - 1))
        if len(set(good)) == 2 and len(pairs) < PAIRS:
            better, worse = (here.renderer.decode(drawn[i][good.index(which)]) for which in (True, False))
            about: dict[str, Any] = {"source": "countdown", "problem": problems[i].id, "split": "train"}
            pairs.append(PreferencePair.make(prompt=problems[i].prompt, chosen=better, rejected=worse, **about))
    return pairs, rows


def _verdicts() -> tuple[int, int]:
    """The ids by which a judge says that an answer is right, and that it is not."""
    yes, no = (int(starts.start("countdown").renderer.encode(word)[-1]) for word in "10")
    return yes, no


@lru_cache(maxsize=32)
def _judge(seed: int) -> nn.Module:
    rng, rows = np.random.default_rng(seed_for(seed, "answer worlds", "judge")), _known(seed)[1]
    judge = deepcopy(starts.start("countdown").base)
    learner = Learner(judge, Optim(lr=2e-3, warmup=10, steps=JUDGED))
    for _ in range(JUDGED):
        learner.step(pack([rows[i] for i in rng.integers(len(rows), size=32)]), nll)
    return judge


def engine_of(model: nn.Module, seed: int) -> Engine:
    """The models that a decoder may ask here."""
    here = starts.start("countdown")

    def said(ids: np.ndarray) -> str:
        return normalise(extract_answer(here.renderer.decode(ids)) or "")

    def rewards(rows: Sequence[np.ndarray]) -> list[float]:
        if not rows:
            return []
        judge = TorchSampler(_judge(seed), here.renderer.end_id)
        verdict = Engine(sampler=judge, text=here.renderer.decode, said=here.renderer.decode)
        yes, no = (verdict.logp([(row, np.array([token])) for row in rows]) for token in _verdicts())
        return [1 / (1 + math.exp(float(d))) for d in no - yes]

    return Engine(
        sampler=TorchSampler(model, here.renderer.end_id),
        text=here.renderer.decode,
        said=said,
        sampling=Sampling(max_tokens=here.size.turn),
        rewards=rewards,
        ids=here.renderer.encode,
    )


@lru_cache(maxsize=64)
def _answered(spec: str, limits: tuple[int, ...], seed: int, others: bool = False) -> tuple[float, tuple[int, ...]]:
    """Share of right answers of a decoder (its piece and knobs, as JSON) of the policy within these budgets (none: without), and the
    forward tokens of each. others: to other problems of the test split."""
    here = starts.start("countdown")
    decode, engine = bind("decode", json.loads(spec)), engine_of(here.base, seed)
    fitted = decode.fit(engine, examples(_known(seed)[0], here.renderer)) if decode.fit else None  # type: ignore[attr-defined]
    return _scored(decode, engine, fitted, limits, seed, others)


def _scored(
    decode: Any, engine: Engine, fitted: Any, limits: tuple[int, ...], seed: int, others: bool
) -> tuple[float, tuple[int, ...]]:
    problems = _asked(others)
    asks = [
        Ask(prompt=_prompt(p), seed=seed_for(seed, "asked", i), max_tokens=_turn(), forward_tokens=limit)
        for i, (p, limit) in enumerate(zip(problems, limits or [0] * len(problems), strict=True))
    ]
    done: list[Decoded] = decode(engine, asks, fitted)
    right = [_right(p, d.segment.ids) for p, d in zip(problems, done, strict=True)]
    return float(np.mean(right)), tuple(d.account.spent for d in done)


def _asked(others: bool) -> list[Problem]:
    problems = starts.start("countdown").measured
    if others:
        make = partial(starts.countdown_problem, levels=(1,))
        problems = starts._family(make, "test", 2 * len(problems))[len(problems) :]
    return [p for p in problems for _ in range(TRIES)]


def _turn() -> int:
    return starts.start("countdown").size.turn


def _lay(room: Room) -> None:
    room.stand("sft", kept_policy())
    room.write("clean", pairs=_known(room.seed)[0])
    room.write("questions", problems=starts.start("countdown").world.training[:TRAINING])
    room.write("kb", passages=NOTHING)


def _measure(room: Room, others: bool = False) -> dict[str, float]:
    """See the head of this file."""
    knobs = room.kept.get("knobs", {})
    mine = knobs["evaluate"].params["decoders"] if knobs else []
    shipped = plans(room.recipe, {}, 0)["evaluate"].params["decoders"] if knobs else []
    if mine:
        own, spec = (json.dumps(d[0], sort_keys=True) for d in (shipped, mine))
        right, spent = _answered(own, (), room.seed, others)
        if spec != own:
            limits = tuple(max(n, len(_prompt(p)) + _turn()) for n, p in zip(spent, _asked(others), strict=True))
            right, spent = _answered(spec, limits, room.seed, others)
    elif "prefer" in (read_recipe(room.recipe).get("stages") or {} if knobs else {}):
        run_stage(room, "prefer", knobs["prefer"])
        right, spent = _scored(
            bind("decode", {"piece": "sample"}), engine_of(room.model(), room.seed), None, (), room.seed, others
        )
    else:
        right, spent = _answered(json.dumps({"piece": "sample"}), (), room.seed, others)
    return {"solved": right, "forward_tokens": float(np.mean(spent))}


def countdown_answers() -> Place:
    """See the head of this file."""
    return Place((), _lay, _measure)


def other_countdown_answers() -> Place:
    """As `countdown_answers`, asked as many other problems of the test split: for a protocol that was written after the first ones
    had been answered."""
    return Place((), _lay, partial(_measure, others=True))


WORLDS = (countdown_answers, other_countdown_answers)
