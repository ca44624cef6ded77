"""A small world with a thought before the answer: five digits, their running sums modulo 10, and the last of these as the
answer: `31415` is answered `34894<answer>4</answer>`.

The first policy, two layers, is taught by demonstrations in the way of generation that the recipe names (at its own
knobs, controls of sampling left out), once for all seeds, and not to the end: it errs. Then the real stage `rl` runs.
Measured of QUESTIONS problems that `rl` never played, one draw each, in the way of the protocol's side:

    accuracy    share of right answers
    greedy      the same at temperature 0
    thought     steps of thought, an answer: sets or vectors where there are some, else tokens before the answer
    corrected   of masked diffusion: right demonstrations, one token of every second of them replaced by another digit, pass the
                last MEND steps of unmasking at temperature 0; the share that is then right throughout. 0.5 where nothing is
                masked again

`short_thoughts` has three digits: what is taught otherwise than token by token learns slowly. `worded_thoughts` has three, and
writes each sum out, five tokens for one new digit: `314` is answered `3+1=44+4=8<answer>8</answer>`. Four tokens of five can be
foretold, so a thought may be shorter and carry the same. All ways are taught equally long there. `clipped_thoughts` has three
digits too, but what is written token by token is taught with the last one of the thought alone, `8<answer>8</answer>`, as long as other ways.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from synth.types import Message, Problem, Sampling, digest, seed_for
from tasks.lab.label_worlds import NOTHING
from tasks.lab.worlds import Place, Room, _folder
from tasks.planning.pieces import bind, bind_all
from tasks.storage import commit
from training.env.single import single
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row
from training.learner.rows import demonstration_row, weighted
from training.model.model import load_model, new_model, save_model, train_tokenizer
from training.model.render import Renderer
from training.rollout.generation import Generation
from training.rollout.generation.masked_diffusion import MaskedDiffusion
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

LONG, SHORT, TRAIN, QUESTIONS, BATCH, CORRECTING = 5, 3, 400, 200, 32, 2
STEPS = {"": 180, "gaussian_latents": 600, "masked_diffusion": 600}  # in which a first policy is taught
WORDED = 1200  # the same where sums are written out, whatever the way
# Knobs that say how turns are sampled, and not what is taught
CONTROLS = {"weights", "latents", "remask", "k", "c", "max_latent"}


def _text(digits: np.ndarray, words: bool = False) -> tuple[str, str]:
    sums = np.cumsum(digits) % 10
    steps = map(str, sums)
    if words:
        steps = (f"{a}+{b}={c}" for a, b, c in zip(sums[:-1], digits[1:], sums[1:], strict=True))
    return "".join(map(str, digits)), f"{''.join(steps)}<answer>{sums[-1]}</answer>"


@dataclass(frozen=True)
class Chain:
    """How long the problems of a world are: digits; words: whether each sum is written out; every: of so many tokens of a thought
    the last one stays, where it is written token by token."""

    digits: int
    words: bool = False
    every: int = 1

    def text(self, digits: np.ndarray) -> tuple[str, str]:
        return _text(digits, self.words)

    def clipped(self, solution: str) -> str:
        """A token is a character there."""
        thought, tag, answer = solution.partition("<answer>")
        return thought[self.every - 1 :: self.every] + tag + answer

    def steps(self, piece: str) -> int:
        """In which a first policy is taught a way of generation ("": token by token)."""
        if self.words:
            return WORDED
        return STEPS[piece] if self.every == 1 else max(STEPS.values())

    @property
    def longest(self) -> int:
        """Most tokens of a turn."""
        return 40 if self.words else 16


def problems(split: Any, n: int, chain: Chain) -> list[Problem]:
    """Problems of a split; those of different splits differ."""
    rng = np.random.default_rng(seed_for(0, "thoughts"))
    drawn = rng.permutation(10**chain.digits)[: TRAIN + QUESTIONS]
    chosen = drawn[:TRAIN] if split == "train" else drawn[TRAIN:]
    out = []
    for number in chosen[:n]:
        question, solution = chain.text(np.array([int(c) for c in f"{number:0{chain.digits}d}"]))
        about: dict[str, Any] = {"verifier": "exact", "env": "single", "family": "thoughts", "split": split}
        out.append(Problem.make(prompt=question, answer=solution.partition("<answer>")[2][0], **about))
    return out


@lru_cache
def _tokenizer() -> Any:
    rng = np.random.default_rng(0)
    texts = ["user", "assistant", *("".join(_text(rng.integers(0, 10, LONG))) for _ in range(50))]
    return train_tokenizer(texts * 2, vocab_size=288)


def _row(renderer: Renderer, rng: np.random.Generator, chain: Chain, piece: str) -> Row:
    question, solution = chain.text(rng.integers(0, 10, chain.digits))
    solution = solution if piece else chain.clipped(solution)
    talk = [Message(role="user", content=question), Message(role="assistant", content=solution)]
    return demonstration_row(renderer, talk, 0.0)


def taught(spec: dict[str, Any] | None, chain: Chain) -> Path:
    """A sealed folder as the stage sft writes it, of a policy that was taught a way of generation."""
    way = bind("generation", spec)() if spec else None
    if way is None or not way.lessons:
        return _taught("", "{}", chain)
    assert spec is not None
    return _taught(
        spec["piece"], json.dumps({k: v for k, v in spec.items() if k not in CONTROLS}, sort_keys=True), chain
    )


def newborn(world: str) -> nn.Module:
    """A model that knows nothing, of the size and the words of these worlds."""
    return new_model(
        _tokenizer(),
        hidden=64,
        layers=2,
        heads=4,
        kv_heads=2,
        intermediate=128,
        max_length=64,
        init_range=0.06,
        seed=seed_for(0, world, "model"),
    )


@lru_cache
def _taught(piece: str, knobs: str, chain: Chain) -> Path:
    tokenizer = _tokenizer()
    renderer = Renderer(tokenizer)
    model = newborn("thoughts")
    way: Generation | None = bind("generation", json.loads(knobs))() if piece else None
    kind: dict[str, Any] = {"kind": "muon", "lr": 4e-3} if piece else {"lr": 3e-3}
    rng, optim = np.random.default_rng(1), Optim(warmup=20, steps=chain.steps(piece), **kind)
    if way is not None:
        way.begin(model, renderer)
    learner = Learner(model, optim) if way is None else Learner(model, optim, read=way.taught)
    for _ in range(chain.steps(piece)):
        rows = [_row(renderer, rng, chain, piece) for _ in range(BATCH)]
        if way is not None:
            rows = [way.lesson(row, renderer, rng) for row in rows]
        learner.step(weighted(rows, "cpu"), nll if way is None else way.loss)
    folder = _folder() / f"thoughts-{digest(piece, knobs, repr(chain))[:8]}"
    folder.mkdir()
    for name in ("model", "base"):
        save_model(model, tokenizer, folder / name)
    commit.seal(folder)
    return folder


def _lay(room: Room, chain: Chain) -> None:
    room.write("problems", problems=problems("train", TRAIN, chain))
    room.write("questions", problems=[])
    room.write("kb", passages=NOTHING)


def _start(room: Room, name: str, resolved: Any, chain: Chain) -> None:
    """In the place of the stage sft."""
    room.stand("sft", taught(room.kept["knobs"]["rl"].params["generation"], chain))


def _measure(room: Room, chain: Chain) -> dict[str, float]:
    """See the head of this file."""
    way, folder = None, taught(None, chain)
    if "knobs" in room.kept:
        stage = room.kept["knobs"]["rl"]
        way_of_writing = bind_all(stage.pieces, stage.params, stage.settings)["generation"]
        way, folder = way_of_writing() if way_of_writing is not None else None, room.root / "artifacts" / "rl"
    return measured(folder / "model", way, room.seed, chain)


def measured(folder: Path, way: Generation | None, seed: int, chain: Chain) -> dict[str, float]:
    model, tokenizer = load_model(folder)
    renderer = Renderer(tokenizer)
    if way is not None:
        way.begin(model, renderer, folder)
    player = Player(
        sampler=TorchSampler(model, renderer.end_id) if way is None else way.sampler(model, renderer),
        renderer=renderer,
        envs={"single": single()},
        sampling=Sampling(temperature=1.0, max_tokens=chain.longest),
        max_tokens=64,
    )
    questions = problems("test", QUESTIONS, chain)
    rollouts = [g.rollouts[0] for g in player.play(questions, 1, seed_for(seed, "thoughts", "measure"))]
    cold = replace(player, sampling=replace(player.sampling, temperature=0.0)).play(questions, 1, seed)
    right = lambda played: float(np.mean([getattr(r.score, "value", 0.0) >= 1 for r in played]))  # noqa: E731
    corrected = _corrected(way, model, renderer, seed, chain) if isinstance(way, MaskedDiffusion) else {}
    steps = [renderer.decode(r.segments[-1].ids).partition("<answer>")[0] for r in rollouts]
    return {
        "accuracy": right(rollouts),
        "greedy": right([g.rollouts[0] for g in cold]),
        "thought": float(np.mean([len(renderer.encode(s)) if s else 0 for s in steps])),
        **corrected,
    }


def _corrected(way: MaskedDiffusion, model: nn.Module, renderer: Renderer, seed: int, chain: Chain) -> dict[str, float]:
    rng = np.random.default_rng(seed_for(seed, "mended"))
    prompts, right, begun = [], [], []
    figures = [int(renderer.encode(str(d))[0]) for d in range(10)]
    for i, p in enumerate(problems("test", QUESTIONS, chain)):
        ids = renderer.encode(chain.text(np.array([int(c) for c in p.prompt[0].content]))[1])
        turn = np.concatenate([ids, np.full(way.length - len(ids), renderer.end_id)]).astype(np.int64)
        seen = turn.copy()
        if i % 2:
            at = int(rng.choice(np.flatnonzero(np.isin(turn, figures))))
            seen[at] = rng.choice([f for f in figures if f != turn[at]])
        prompts.append(np.array(renderer.prompt(p.prompt), dtype=np.int64))
        right.append(turn)
        begun.append(seen + 1)
    session = way.sampler(model, renderer).open(prompts, list(range(len(prompts))))
    session.begun = (max(way.steps - CORRECTING, 0), np.stack(begun))
    turns = session.generate(Sampling(temperature=0.0, max_tokens=way.length))
    same = [np.array_equal(s.ids, t[: len(s.ids)]) for s, t in zip(turns, right, strict=True)]
    return {"corrected": float(np.mean(same))}


def _place(chain: Chain) -> Place:
    return Place(
        ("sft", "rl"), partial(_lay, chain=chain), partial(_measure, chain=chain), partial(_start, chain=chain)
    )


def thoughts() -> Place:
    """See the head of this file."""
    return _place(Chain(LONG))


def short_thoughts() -> Place:
    """The same of three digits."""
    return _place(Chain(SHORT))


def worded_thoughts() -> Place:
    """Of three, each sum written out."""
    return _place(Chain(SHORT, words=True))


def clipped_thoughts() -> Place:
    """Of three, or, token by token, the last of these alone: as many tokens as a way that merges all three has vectors."""
    return _place(Chain(SHORT, every=SHORT))


WORLDS = (thoughts, short_thoughts, worded_thoughts, clipped_thoughts)
