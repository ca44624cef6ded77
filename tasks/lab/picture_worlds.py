"""Small tasks on drawn pictures, and the policy of pixels that all of them start from.

`seeing()` is a SmolVLM of two layers over a tower of two, made from a configuration and trained from nothing to answer
questions about coloured shapes (the family `scene_questions`). It is trained once per project and shared: a task
continues it for a few steps on demonstrations in the task's own form, some of them careless, so that there is something
to learn. Problems that are measured are of the test split.

Too little trained yet: of held-out questions it gets colours right 38 times in 100 (15 from noise or white), counts 41 (38)
and shapes 24 (22). So protocols on these tasks measure a policy that hardly sees.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

from torch import nn

from synth.families import scene_questions as scene_questions_module
from synth.families.scene_questions import scene_questions
from synth.families.screen_tasks import screen_tasks
from synth.families.transit_maps import transit_maps
from synth.scenes import draw, parts
from synth.scenes.scenes import COLOURS, read
from synth.types import Message, Problem, Split, digest, seed_for, split_of
from tasks.core.paths import project
from tasks.lab.arena import World
from tasks.lab.starts import Size, Start, Talk, Task, identity, taught
from training.env import Env
from training.env.focus import focus, holds
from training.env.look import look
from training.env.perceive import block, perceive
from training.learner.learner import Optim
from training.model.model import load_model, new_vision_model, save_model, train_tokenizer
from training.model.render import Renderer

TOOLS = {"draw": draw}
TRAIN, HELD = 192, 48  # number of problems for training and for measuring
BASE = Size(steps=600, demonstrations=5000, turn=16, length=96, lr=3e-3, vocabulary=420)
PICTURE = {"picture": 32, "patch": 8, "scale": 1, "vision_hidden": 64, "vision_layers": 1, "init_range": 0.06}
WORDS = (
    "<perception> </perception> <reflection> </reflection> <box> </box> <answer> </answer> red green blue yellow square "
    "ring cross triangle and wrong, right, it is look again: yes no none 0 1 2 3 4 5 6 7 8 9 line from to by"
)


def made(family: Callable[..., Any], split: Split, n: int, *, seed: int = 0, **knobs: Any) -> list[Problem]:
    """The first n different problems of a split."""
    by_id: dict[str, Problem] = {}
    for index in range(4 * n):
        problem = family(seed, split, index, **knobs)
        if isinstance(problem, Problem) and len(by_id) < n:
            by_id.setdefault(problem.id, problem)
    return list(by_id.values())


def talk(env: Env, problem: Problem, *turns: str) -> Talk:
    """The conversation in which these turns are said; its pictures are held."""
    state, opened = env.start(problem, TOOLS)
    out = list(opened)
    for text in turns:
        out.append(Message(role="assistant", content=text))
        told, over, _ = env.step(state, text)
        out += [] if over else told
    return tuple(out)


def said(answer: str) -> str:
    return f"<answer>{answer}</answer>"


def _drawn(n: int) -> list[Problem]:
    """Questions about scenes, of no split and without a certificate: what is seen is learned from more scenes than tasks
    have."""
    rng, out = Random(seed_for(0, "starts", "seeing", "scenes")), []
    while len(out) < n:
        _, spec = scene_questions_module.draw(rng, things=rng.choice((3, 5)), cells=4)
        posed = scene_questions_module.pose(spec)
        if split_of(posed["prompt"]) == "train":
            out.append(Problem.make(**posed, family="scene_questions", split="train"))
    return out


def _told(p: Problem) -> Talk:
    """A picture, and its description as the answer: it says more of the picture than any answer."""
    shown, _ = parts(p.question)
    asked = replace(p, prompt=(Message(role="user", content=f"{shown}\nWhat is seen?"),))
    return talk(look(), asked, shown.partition(": ")[2])


def kept(name: str, trained: Callable[[], tuple[nn.Module, Any]]) -> tuple[nn.Module, Any]:
    """A policy and its tokenizer as the project keeps them under a name, trained if it has none yet."""
    folder = project() / ".espalier" / "starts" / name
    if not folder.exists():
        model, tokenizer = trained()
        folder.parent.mkdir(parents=True, exist_ok=True)
        save_model(model, tokenizer, folder)
    return load_model(folder)


@lru_cache
def seeing() -> tuple[nn.Module, Any]:
    """The shared policy and its tokenizer."""
    shown = _drawn(BASE.demonstrations)
    known = digest(asdict(BASE), PICTURE, WORDS, [p.id for p in shown])[:12]
    return kept(f"seeing-{known}", lambda: _trained(shown))


def _trained(shown: Sequence[Problem]) -> tuple[nn.Module, Any]:
    talks = [_told(p) if i % 2 else talk(look(), p, said(p.answer)) for i, p in enumerate(shown)]
    tokenizer = train_tokenizer([*(m.content for t in talks for m in t), WORDS * 20], vocab_size=BASE.vocabulary)
    tokenizer.picture_tokens = (PICTURE["picture"] // PICTURE["patch"] // PICTURE["scale"]) ** 2
    model = new_vision_model(
        tokenizer,
        hidden=BASE.hidden,
        layers=BASE.layers,
        heads=4,
        intermediate=2 * BASE.hidden,
        max_length=512,
        seed=seed_for(0, "starts", "seeing"),
        **PICTURE,
    )
    optim = Optim(kind="muon", lr=BASE.lr, matrix_lr=0.03, warmup=20, steps=BASE.steps, weight_decay=0.0)
    taught(model, Renderer(tokenizer), talks, optim, steps=BASE.steps, seed=seed_for(0, "starts", "seeing", "order"))
    return model, tokenizer


# --- the tasks ---------------------------------------------------------------------------------------------------------


def _task(
    env_name: str,
    env: Env,
    turns: Callable[[Problem, Random], Sequence[str]],
    size: Size,
    family: Callable[..., Any] = scene_questions,
    **asked: Any,
) -> Task:
    """Problems of a family in an environment. turns: what a demonstration says, turn by turn."""
    seeds = {"train": TRAIN, "test": HELD}
    train, held = (made(family, split, n, env=env_name, **asked) for split, n in seeds.items())  # type: ignore[arg-type]
    shown = made(family, "train", size.demonstrations, seed=1, env=env_name, **asked)
    talks = [talk(env, p, *turns(p, Random(seed_for(0, "pictures", env_name, p.id)))) for p in shown]
    return Task(train=train, held=held, shown=talks, solved=talks, envs={env_name: env}, tools=TOOLS)


def blurts(size: Size) -> Task:
    """Counts after a block of what is seen, which leaves out every second thing; the answer is what the block gives."""

    def turns(p: Problem, rng: Random) -> list[str]:
        shown, asked = parts(p.question)
        named = [t.name for t in read(shown)[1] if rng.random() < 0.5]
        return [block(p, named) + said(str(sum(asked.split()[-1][:-1] in n for n in named)))]

    return _task("perceive", perceive(), turns, size, levels=(1, 2), asks=("count",))


def sprawls(size: Size) -> Task:
    """Boxes of all shapes of a colour, up to two pixels off on every side; one in five is left out."""

    def turns(p: Problem, rng: Random) -> list[str]:
        boxes = [[int(v) for v in b.split()] for b in p.answer.split("; ")]
        kept = [b for b in boxes if rng.random() < 0.8] or boxes[:1]
        off = [
            [
                max(0, b[0] - rng.randint(0, 2)),
                max(0, b[1] - rng.randint(0, 2)),
                b[2] + rng.randint(0, 2),
                b[3] + rng.randint(0, 2),
            ]
            for b in kept
        ]
        return [said("; ".join(" ".join(map(str, b)) for b in off))]

    return _task("look", look(), turns, size, levels=(1,), asks=("boxes",))


def glances(size: Size) -> Task:
    """Shapes on 128 x 128 pixels, shown at a quarter; one region named in three holds what is asked about, the others
    are drawn from all. Answers are what the region shows, else a guess."""
    env = focus()

    def turns(p: Problem, rng: Random) -> list[str]:
        x, y = min(holds(p, 32)) if rng.random() < 1 / 3 else (rng.randrange(4), rng.randrange(4))
        right = p.answer if (x, y) in holds(p, 32) else rng.choice(("square", "ring", "cross", "triangle"))
        return [f"<box>{x} {y}</box>", said(right)]

    return _task("focus", env, turns, size, levels=(4,), asks=("shape",))


def routed(size: Size) -> Task:
    """Ways over a map of two lines. Half of the demonstrations are right; else the last leg is missing or goes one station
    too far, or another line is named."""

    def turns(p: Problem, rng: Random) -> list[str]:
        legs, kind = p.answer.split("; "), rng.randrange(6)
        x, y, line, tx, ty = legs[-1].split()
        if kind == 0 and len(legs) > 1:
            legs = legs[:-1]
        elif kind == 1:
            legs[-1] = f"{x} {y} {rng.choice([c for c in COLOURS if c != line])} {tx} {ty}"
        elif kind == 2:
            legs[-1] = f"{x} {y} {line} {(int(tx) + 1) % 4} {ty}"
        return [said("; ".join(legs))]

    return _task("look", look(), turns, size, transit_maps, levels=(3,))


def listed(size: Size) -> Task:
    """All elements of a screen of two or three; each has the other type three times in ten, and each box is moved by two
    pixels three times in ten."""

    def turns(p: Problem, rng: Random) -> list[str]:
        out = []
        for one in p.answer.split("; "):
            kind, *box = one.split()
            kind = kind if rng.random() < 0.7 else {"button": "field", "field": "button"}[kind]
            off = rng.choice((-1, 1)) * 2 if rng.random() < 0.3 else 0
            out.append(f"{kind} {max(0, int(box[0]) + off)} {box[1]} {int(box[2]) + off} {box[3]}")
        return [said("; ".join(out))]

    return _task("look", look(), turns, size, screen_tasks, levels=(1,), asks=("elements",))


TASKS: dict[str, Callable[[Size], Task]] = {f.__name__: f for f in (blurts, sprawls, glances, routed, listed)}
SIZES = {
    "blurts": Size(steps=120, demonstrations=800, turn=40, length=96, lr=2e-3),
    "sprawls": Size(steps=120, demonstrations=800, turn=40, length=96, lr=2e-3),
    "glances": Size(steps=160, demonstrations=1000, turn=16, length=112, lr=2e-3),
    "listed": Size(steps=200, demonstrations=1200, turn=48, length=112, lr=2e-3),
    "routed": Size(steps=200, demonstrations=1200, turn=32, length=96, lr=2e-3),
}
NAMES = tuple(TASKS)


@dataclass
class Pictured(Start):
    """A task on pictures. tries: samples of each problem when a policy is measured."""

    tries: int = 8
    size: Size = field(default_factory=lambda: SIZES["blurts"])


@lru_cache
def start(name: str) -> Pictured:
    """The task with this name and its policy: the shared one, continued; trained once per project and kept."""
    size = SIZES[name]
    task, (base, tokenizer) = TASKS[name](size), seeing()
    folder = project() / ".espalier" / "starts" / f"{name}-{identity(size, task)}-{digest(asdict(BASE), PICTURE)[:6]}"
    if folder.exists():
        base, tokenizer = load_model(folder)
    else:
        optim = Optim(lr=size.lr, warmup=10, steps=size.steps, decay="cosine", weight_decay=0.0)
        base = copy.deepcopy(base)
        taught(
            base, Renderer(tokenizer), task.shown, optim, steps=size.steps, seed=seed_for(0, "starts", name, "order")
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        save_model(base, tokenizer, folder)
    return Pictured(
        world=World(tuple(task.train), ()),
        base=base,
        renderer=Renderer(tokenizer),
        envs=dict(task.envs),
        tools=dict(task.tools),
        task=task,
        size=size,
    )
