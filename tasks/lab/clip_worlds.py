"""Small tasks on clips and screens, for protocols: problems to learn from, problems of the test split to be measured on, and a
policy of pixels that is sometimes right.

Policies of screens go on from the one of picture_worlds.py that has learned where things are (`aiming`); those of clips from the
shared one, which has learned what the cells of a picture show. For clips it learns first to tell one frame from another
(`watching`): what a frame of a number shows, in which frames a thing is and where, and what problems ask. Then each task
continues it on demonstrations of yet other problems, some of them careless. All are trained once per project and kept.
Frames of 32 pixels are sixteen tokens each. Questions that differ in nothing but what is shown cannot be answered without looking.

What each begins with, with its own clip or screen, with noise and with another's, is in docs/media.md (`make bench-seeing`).

    acting      a request is fulfilled action by action (`screen`)
    filling     the same, and requests have one part
    browsing    the same again, on pages that a browser has drawn (without one, and without their pictures in the cache: one sentence)
    pointing    a cursor is moved to a widget of a screen (environment `point`)
    rated       eight frames with planted faults are given three scores (`look`)
    grounded    in which frames a shape is shown (`look`)
    watched     which way a shape moves, after statements of what was seen (`rewatch`)
    spotted     a flash between frames that are shown; more can be requested (`frames`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from random import Random
from typing import Any

from torch import nn

from synth.families.clip_questions import clip_questions
from synth.families.screen_tasks import screen_tasks
from synth.scenes.clips import frames as frames_of
from synth.scenes.clips import read
from synth.scenes.scenes import CELL
from synth.types import Message, Problem, Split, digest, seed_for, split_of
from synth.verify import segments as spans
from synth.verify.clicks import read as read_screen
from tasks.lab.arena import World
from tasks.lab.picture_worlds import (
    SHOWN,
    TOOLS,
    aimed_name,
    aiming,
    continued,
    fitting,
    kept,
    lessons_optim,
    made,
    said,
    shared_name,
)
from tasks.lab.picture_worlds import seeing as shared
from tasks.lab.starts import Size, Start, Talk, Task
from training.env import Env
from training.env.frames import frames
from training.env.look import look
from training.env.point import point
from training.env.rewatch import rewatch
from training.env.screen import Drawn, screen
from training.model.render import Renderer

TRAIN, HELD = 256, 48  # number of problems for training and for measuring
CLIPS = ("rated", "grounded", "spotted", "watched")  # tasks whose policy has learned to watch
WATCHED = Size(steps=900, demonstrations=4000, turn=24, length=224, lr=2e-3)
Says = Callable[[Problem, int, str, Random], str]  # problem, turn from 0, what was heard last -> a turn


def talk(env: Env, problem: Problem, says: Says, rng: Random) -> Talk:
    """The conversation in which these turns are said; its pictures are held."""
    state, opened = env.start(problem, TOOLS)
    out, over, turn = list(opened), False, 0
    while not over:
        text = says(problem, turn, out[-1].content, rng)
        out.append(Message(role="assistant", content=text))
        told, over, _ = env.step(state, text)
        out += [] if over else told
        turn += 1
    return tuple(out)


def _task(size: Size, env: Env, says: Says, family: Callable[..., Any], name: str, **knobs: Any) -> Task:
    """Problems of a family, played in one environment."""
    rng = Random(seed_for(0, "clips", name))
    train, shown = (
        made(family, "train", n, seed=s, env=name, **knobs) for s, n in ((0, TRAIN), (1, size.demonstrations))
    )
    return Task(
        train=train,
        held=made(family, "test", HELD, env=name, **knobs),
        envs={name: env},
        tools=TOOLS,
        solved=[],
        shown=[talk(env, p, says, rng) for p in shown],
    )


def pointing(size: Size) -> Task:
    """Where the cursor is and where it has to go is told first. A move is the right one six times in ten, else any; who has
    arrived stops nine times in ten, and one in ten stops anywhere."""
    env = point()
    here = [0, 0]  # where the cursor of the conversation is

    def says(p: Problem, turn: int, heard: str, rng: Random) -> str:
        screen = read_screen(p.question.partition("\n")[0])
        assert screen.cursor is not None
        left, top, *_ = map(int, p.answer.split())
        if not turn:
            here[:] = screen.cursor
        way = [left // 8 - here[0], top // 8 - here[1]]
        thought = f"from {here[0]} {here[1]} to {left // 8} {top // 8}"
        if rng.random() < (0.9 if way == [0, 0] else 0.1):
            return f"{thought}<stop/>"
        if rng.random() >= 0.6 or way == [0, 0]:
            way = [rng.randint(-here[k], 3 - here[k]) for k in (0, 1)]
        here[0], here[1] = here[0] + way[0], here[1] + way[1]
        told = [
            f"{names[d > 0]} {abs(d)}" for names, d in zip((("left", "right"), ("up", "down")), way, strict=True) if d
        ]
        return f"{thought}<move>{' '.join(told)}</move>"

    return _task(size, env, says, screen_tasks, "point", asks=("point",), levels=(1,))


def acting(size: Size) -> Task:
    """Requests of two parts, action by action: an action is the next of the reference seven times in ten, else a click
    anywhere. Two demonstrations in three are questions whether an action is right, answered with the reason, and rightly: a judge
    learns slowly."""

    def says(p: Problem, turn: int, heard: str, rng: Random) -> str:
        actions = p.answer.split("; ")
        if rng.random() < 0.7 and turn < len(actions):
            return f"<act>{actions[turn]}</act>"
        return f"<act>click {rng.randrange(4)} {rng.randrange(4)}</act>"

    task = _task(size, screen(most=4), says, screen_tasks, "screen", asks=("steps",), levels=(1,))
    judged = made(screen_tasks, "train", 2 * size.demonstrations, seed=1, env="look", asks=("judge",), levels=(1,))
    rng = Random(seed_for(0, "clips", "judged"))
    told = [talk(look(), p, lambda p, turn, heard, rng: p.lineage["solution"], rng) for p in judged]
    return replace(task, shown=[*task.shown, *told])


def one_part(seed: int, split: Split, index: int, **knobs: Any) -> Problem | None:
    """A request of screen_tasks up to its first "then", the first of 40 that is of the split; None where none is."""
    for k in range(40):
        whole = screen_tasks(seed, split, 40 * index + k, asks=("steps",), **knobs)
        if not isinstance(whole, Problem):
            continue
        text = f"{whole.question.partition(', then ')[0].rstrip('.')}."
        if split_of(text) == split:
            actions = whole.answer.split("; ")[: 1 if "\nPress" in text else 2]
            return Problem.make(
                prompt=text,
                answer="; ".join(actions),
                verifier=whole.verifier,
                env=whole.env,
                family=whole.family,
                difficulty=whole.difficulty,
                split=split,
            )
    return None


def filling(size: Size, drawn: Drawn = "numpy") -> Task:
    """Requests of one part, a press or a letter to be written: an action is the next of the reference six times in ten, else a click
    anywhere. Who clicks beside everything may go on, up to four actions. drawn: by whom, as the environment `screen` has it."""

    def says(p: Problem, turn: int, heard: str, rng: Random) -> str:
        click, *typed = p.answer.split("; ")
        if not turn:
            clicked[:] = [False]
        if rng.random() < 0.6:
            act = typed[0] if clicked[0] else click
        else:
            act = f"click {rng.randrange(4)} {rng.randrange(4)}"
        clicked[0] = act == click  # a click elsewhere takes it away
        return f"<act>{act}</act>"

    clicked = [False]  # whether what is written goes into the field that is asked for
    return _task(size, screen(most=4, drawn=drawn), says, one_part, "screen", levels=(1,))


def browsing(size: Size) -> Task:
    """As `filling`, on pages that a browser has drawn."""
    return filling(size, "browser")


def _near(gold: int, rng: Random, right: float) -> int:
    return gold if rng.random() < right else rng.choice([x for x in (3, 4, 5) if x != gold])


def rated(size: Size) -> Task:
    """Each score is right six times in ten."""

    def says(p: Problem, turn: int, heard: str, rng: Random) -> str:
        return said(" ".join(str(_near(int(x), rng, 0.6)) for x in p.answer.split()))

    return _task(size, look(), says, clip_questions, "look", asks=("rate",))


def grounded(size: Size) -> Task:
    """Stretches are right half of the time; else they are told as one, or begin or end a frame off. The times are cited
    before the answer half of the time, and then they are those of the answer eight times in ten."""

    def says(p: Problem, turn: int, heard: str, rng: Random) -> str:
        gold = spans.read(p.answer)
        assert gold is not None
        given = list(gold)
        if rng.random() < 0.5:
            if len(given) > 1 and rng.random() < 0.6:
                given = [(given[0][0], given[-1][1])]
            else:
                a, b = given[-1]
                given[-1] = (a, b + 1) if rng.random() < 0.5 or a == b else (a, b - 1)
        told = "; ".join(f"{a}-{b}" for a, b in given)
        if rng.random() < 0.5:
            return said(told)
        cited = told if rng.random() < 0.8 else f"{rng.randint(1, 4)}-{rng.randint(5, 8)}"
        return f"<think>{cited}</think>{said(told)}"

    return _task(size, look(), says, clip_questions, "look", asks=("when",), levels=(3,))


def spotted(size: Size) -> Task:
    """A clip of eight frames of which three are shown at first. Who looks asks for the stretch in which the shape grows six
    times in ten, else for any; one in three answers at once. The answer is right where the flash was shown."""
    env = frames(first=3, each=3, most=3)

    def says(p: Problem, turn: int, heard: str, rng: Random) -> str:
        _, tracks = read(p.question.partition("\n")[0])
        flash = next(t for t in tracks.values() if sum(s is not None for s in t) == 1)
        at = next(i for i, s in enumerate(flash, 1) if s is not None)
        seen = [int(w) for w in heard.split() if w.isdigit()][:3]
        if at in seen:
            return said(p.answer)
        if turn >= 3 or rng.random() < 0.33:
            return said(rng.choice(["red", "green", "blue", "yellow"]))
        gaps = [(a + 1, b - 1) for a, b in ((1, 4), (4, 8))]
        a, b = (
            next(g for g in gaps if g[0] <= at <= g[1])
            if rng.random() < 0.6
            else rng.choice([(1, 2), (2, 3), (5, 7), (7, 8)])
        )
        return f"<frames>{a} {b}</frames>"

    return _task(size, env, says, clip_questions, "frames", asks=("flash",), levels=(1,))


def watched(size: Size) -> Task:
    """What is seen in the first and in the last frame is stated half of the time, each place rightly six times in ten; the answer is
    right six times in ten whatever was stated."""

    def says(p: Problem, turn: int, heard: str, rng: Random) -> str:
        ((name, track),) = read(p.question.partition("\n")[0])[1].items()
        told = ""
        for at in (1, len(track)) if rng.random() < 0.5 else ():
            spot = track[at - 1]
            x, y = spot[:2] if spot and rng.random() < 0.6 else (rng.randrange(4), rng.randrange(4))
            told += f"<observation>frame {at}: {name} at {x} {y}</observation>"
        return told + said(p.answer if rng.random() < 0.6 else rng.choice(["left", "right", "up", "down"]))

    return _task(size, rewatch(), says, clip_questions, "rewatch", asks=("direction",), levels=(1,))


SIZES = {
    "acting": Size(steps=2000, demonstrations=4000, turn=28, length=256, lr=2e-3),
    "filling": Size(steps=700, demonstrations=4000, turn=24, length=256, lr=2e-3),
    "browsing": Size(steps=700, demonstrations=4000, turn=24, length=256, lr=2e-3),
    "watched": Size(steps=400, demonstrations=4000, turn=72, length=256, lr=2e-3),
    "pointing": Size(steps=500, demonstrations=4000, turn=36, length=320, lr=2e-3),
    "rated": Size(steps=400, demonstrations=4000, turn=12, length=224, lr=2e-3),
    "grounded": Size(steps=400, demonstrations=4000, turn=32, length=224, lr=2e-3),
    "spotted": Size(steps=400, demonstrations=4000, turn=20, length=384, lr=2e-3),
}
WORLDS: dict[str, Callable[[Size], Task]] = {
    f.__name__: f for f in (acting, filling, browsing, pointing, rated, grounded, spotted, watched)
}


def _lessons(rng: Random, n: int) -> list[Talk]:
    """Clips of the training split, three questions about each: what one frame shows, cell by cell; in which frames a thing is, or
    where; and what the problem asks. Each word of the first two answers is as far from what it tells of as any other, as in the
    lessons of cells."""
    out = []
    for problem in made(clip_questions, "train", n, seed=2, levels=(1, 2, 3)):
        described, _, last = problem.question.partition("\n")
        side, tracks = read(described)
        shown = frames_of(side, tracks)
        some = tuple(SHOWN.add(frame) for frame in shown)
        at, what, name = rng.randrange(len(shown)), rng.choice(("colour", "shape")), rng.choice(sorted(tracks))
        inside = {spot[:2]: thing.split()[what == "shape"] for thing, t in tracks.items() if (spot := t[at])}
        cells = [inside.get((x, y), "none") for y in range(side // CELL) for x in range(side // CELL)]
        kind = rng.choice(("yes", "place", "size"))
        told = {"yes": lambda s: "yes", "place": lambda s: f"{s[0]} {s[1]}", "size": lambda s: str(s[2])}[kind]
        word = {"yes": "is", "place": "at", "size": "size"}[kind]
        posed = [
            (f"Frame {at + 1}: which {what}s?", " ".join(cells)),
            (f"Frames: {name} {word}?", " ".join(told(s) if s else "none" for s in tracks[name])),
            (last, problem.answer),
        ]
        rng.shuffle(posed)
        talked: list[Message] = []
        for i, (question, answer) in enumerate(posed):
            images = "<image>" * len(some) if i == 0 else ""
            talked += [Message(role="user", content=images + question, media=some if i == 0 else ())]
            talked += [Message(role="assistant", content=said(answer))]
        out.append(tuple(talked))
    return out


def _continued(begun: tuple[nn.Module, Any], talks: Sequence[Talk], size: Size, name: str) -> tuple[nn.Module, Any]:
    return continued(*begun, talks, lessons_optim(size.lr, size.steps), seed_for(0, "clips", name, "order"))


@lru_cache
def watching() -> tuple[nn.Module, Any]:
    """The shared policy of clips and its tokenizer."""
    lessons = _lessons(Random(seed_for(0, "clips", "watching")), WATCHED.demonstrations)
    known = digest(shared_name(), asdict(WATCHED), [[m.content for m in t] for t in lessons[:50]])[:12]
    return kept(f"watching-{known}", lambda: _continued(shared(), lessons, WATCHED, "watching"))


@lru_cache
def seeing(name: str) -> Start:
    """The task of a name and its policy, which is trained once per project and kept."""
    size = SIZES[name]
    task = WORLDS[name](size)
    begin = watching if name in CLIPS else aiming
    known = digest(
        asdict(size),
        shared_name() if name in CLIPS else aimed_name(),
        asdict(WATCHED),
        [[[m.role, m.content, list(m.media)] for m in t] for t in task.shown],
    )[:12]
    model, tokenizer = kept(
        f"{name}-{known}", lambda: _continued(begin(), fitting(name, size, task.shown, begin()[1]), size, name)
    )
    return Start(
        world=World(tuple(task.train), ()),
        base=model,
        renderer=Renderer(tokenizer),
        envs=dict(task.envs),
        tools=dict(task.tools),
        task=task,
        size=size,
        tries=4,
    )
