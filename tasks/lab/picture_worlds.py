"""Small tasks on drawn pictures, and the policy of pixels that all of them start from.

`seeing()` is a SmolVLM of two layers over a tower of one, made from a configuration and trained from nothing on coloured shapes
(the family `scene_questions`): first what each cell shows, then how many, which colour, which shape and where. It is trained once per
project and shared: a task continues it for a few steps on demonstrations in the task's own form, some of them careless, so that
there is something to learn. Problems that are measured are of the test split.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

import torch
from torch import nn

from synth.families import scene_questions as scene_questions_module
from synth.families.scene_questions import scene_questions
from synth.families.screen_tasks import screen_tasks
from synth.families.transit_maps import transit_maps
from synth.scenes import draw, parts
from synth.pictures import HELD as SHOWN
from synth.scenes.scenes import CELL, COLOURS, GROUND, Thing, pixels, read
from synth.types import Message, Problem, Split, digest, seed_for, split_of
from synth.verify import boxes
from synth.verify import clicks
from tasks.core.paths import project
from tasks.lab.arena import World
from tasks.lab.starts import Size, Start, Talk, Task, identity, taught
from tasks.models import drawn_pages
from training.env import Env
from training.env.focus import focus, holds, lower
from training.env.look import look
from training.env.perceive import block, perceive
from training.env.reflect import reflect
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model.model import load_model, new_vision_model, save_model, train_tokenizer
from training.model.render import Renderer

TOOLS = {"draw": draw, "page": drawn_pages.draw}
TRAIN, HELD = 192, 48  # number of problems for training and for measuring
BASE = Size(steps=0, demonstrations=0, turn=16, length=96, lr=2e-3, vocabulary=448)
MATRIX_LR = 0.01  # of Muon: at 0.03 nothing is seen after 100 CPU s
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


def talk(env: Env, problem: Problem, *turns: str, tools: Mapping[str, Any] = TOOLS) -> Talk:
    """The conversation in which these turns are said; its pictures are held. tools: `draw` among them."""
    state, opened = env.start(problem, tools)
    out = list(opened)
    for text in turns:
        out.append(Message(role="assistant", content=text))
        told, over, _ = env.step(state, text)
        out += [] if over else told
    return tuple(out)


def said(answer: str) -> str:
    return f"<answer>{answer}</answer>"


FIRST = ("count", "colour", "shape")
ASKED = (
    *FIRST,
    "colour",
    "place",
    "place",
    "box",
    "boxes",
)  # those named twice as often; left and larger no task asks for
QUESTIONS = 5  # about each picture
PLACED = 0.5  # root mean square of what a column, or a row, adds to a patch at initialisation


@dataclass(frozen=True)
class Lessons:
    """How the shared policy learns to see, in steps of supervised learning. cells: on pictures whose cells are told one by one,
    32 of them a step; first: on questions of the kinds FIRST, for where a thing is was learned sooner by a policy that knows what it is;
    questions: on those of ASKED, 16 pictures a step with QUESTIONS each. pictures: how many are drawn for each."""

    cells: int = 80
    first: int = 400
    questions: int = 2600
    pictures: int = 8000
    asked: tuple[str, ...] = ASKED


def _scene(rng: Random, asks: Sequence[str]) -> tuple[int, list[Thing], list[tuple[str, str]]]:
    """A scene of no split, and QUESTIONS about it with their answers: what is seen is learned from more scenes than tasks have."""
    while True:
        cells, things = 4, scene_questions_module.scattered(rng, rng.randint(2, rng.choice((2, 3, 3, 5))), 4)
        posed = []
        for _ in range(8 * QUESTIONS):
            if (question := scene_questions_module.asked_of(rng, things, asks)) and len(posed) < QUESTIONS:
                one = scene_questions_module.pose((CELL * cells, things, question))
                if split_of(one["prompt"]) == "train":
                    posed.append((question, one["answer"]))
        if len(posed) == QUESTIONS:
            return CELL * cells, things, posed


def _questions(rng: Random, n: int, asks: Sequence[str]) -> list[Talk]:
    """Conversations about a picture each, QUESTIONS long."""
    out = []
    for _ in range(n):
        side, things, posed = _scene(rng, asks)
        name, talked = SHOWN.add(pixels(side, things)), []
        for i, (question, answer) in enumerate(posed):
            first = Message(role="user", content=f"<image>{question}", media=(name,))
            talked += [first if i == 0 else Message(role="user", content=question)]
            talked += [Message(role="assistant", content=said(answer))]
        out.append(tuple(talked))
    return out


def _cells(rng: Random, n: int) -> list[Talk]:
    """Pictures whose cells are told one by one, by rows, by colour or by shape: each word of the answer is as far from its cell as
    any other, so what a cell shows is learned in a hundred steps, and questions build on that."""
    out = []
    for _ in range(n):
        side, things, _ = _scene(rng, ASKED)
        at, what = {(t.x, t.y): t for t in things}, rng.choice(("colour", "shape"))
        told = [getattr(at.get((x, y)), what, "none") for y in range(side // CELL) for x in range(side // CELL)]
        shown = Message(role="user", content=f"<image>Which {what}s?", media=(SHOWN.add(pixels(side, things)),))
        out.append((shown, Message(role="assistant", content=said(" ".join(told)))))
    return out


def eyed(model: nn.Module) -> nn.Module:
    """The model with a tower that begins where the ground of a scene is nothing, and where each column and row adds a vector of its own,
    orthogonal to the others and about as long as what a patch shows: else each patch is almost the same large vector, and a policy of
    this size needs most of its warm start to see past it. Where columns and rows differed in a number each, places were not learned."""
    eyes: Any = model.get_submodule("model.vision_model.embeddings")
    with torch.no_grad():
        eyes.patch_embedding.bias.copy_(-eyes.patch_embedding.weight.sum((1, 2, 3)) * (GROUND / 127.5 - 1))
        places = eyes.position_embedding.weight
        side, width = round(len(places) ** 0.5), places.shape[1]
        ways = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(0)))[0]
        for i, place in enumerate(places):
            place += PLACED * width**0.5 * (ways[i % side] + ways[side + i // side])
    return model


def kept(name: str, trained: Callable[[], tuple[nn.Module, Any]]) -> tuple[nn.Module, Any]:
    """A policy and its tokenizer as the project keeps them under a name, trained if it has none yet."""
    folder = project() / ".espalier" / "starts" / name
    if not folder.exists():
        model, tokenizer = trained()
        folder.parent.mkdir(parents=True, exist_ok=True)
        save_model(model, tokenizer, folder)
    return load_model(folder)


def continued(
    model: nn.Module, tokenizer: Any, talks: Sequence[Talk], optim: Optim, order: int
) -> tuple[nn.Module, Any]:
    """A copy of a policy that has gone on to learn from conversations, in the order of a seed, and its tokenizer."""
    model = copy.deepcopy(model)
    taught(model, Renderer(tokenizer), talks, optim, steps=optim.steps, seed=order)
    return model, tokenizer


def fitting(name: str, size: Size, talks: Sequence[Talk], tokenizer: Any) -> Sequence[Talk]:
    """The conversations. Raises ValueError where a turn of one, with its end, is longer than a policy may say, or one is longer than a
    rollout may be: what was demonstrated would be cut off in every sample, and no reward be paid."""
    renderer = Renderer(tokenizer)
    turn = max(len(tokenizer.encode(m.content)) + 1 for t in talks for m in t if m.role == "assistant")
    length = max(len(renderer.demonstration(t)[0]) for t in talks)
    if turn > size.turn or length > size.length:
        raise ValueError(
            f"world {name}: demonstrations have turns of up to {turn} tokens and are up to {length} long, and its size allows turns of "
            f"{size.turn} and a length of {size.length}: raise `turn` and `length` in SIZES"
        )
    return talks


def lessons_optim(lr: float, steps: int, warmup: int = 10) -> Optim:
    """Muon for matrices, down to a fifth of its rate."""
    rates = {"lr": lr, "matrix_lr": MATRIX_LR, "warmup": warmup, "decay": "linear", "final": 0.2}
    return Optim(kind="muon", steps=steps, weight_decay=0.0, **rates)


def shared_name() -> str:
    """The name under which the project keeps the shared policy: another one where what it learned from is another."""
    return f"seeing-{digest(asdict(BASE), asdict(Lessons()), PICTURE, WORDS, QUESTIONS, FIRST, PLACED)[:12]}"


@lru_cache
def seeing() -> tuple[nn.Module, Any]:
    """The shared policy and its tokenizer."""
    return kept(shared_name(), lambda: trained(Lessons()))


def trained(lessons: Lessons) -> tuple[nn.Module, Any]:
    """A policy that learned to see in these lessons, and its tokenizer."""
    rng = Random(seed_for(0, "starts", "seeing", "scenes"))
    cells = _cells(rng, lessons.pictures)
    first = _questions(rng, lessons.pictures if lessons.first else 0, FIRST)
    questions = _questions(rng, lessons.pictures if lessons.questions else 0, lessons.asked)
    texts = [m.content for t in (*cells[:400], *first[:400], *questions[:800]) for m in t]
    tokenizer = train_tokenizer(
        [*texts, (WORDS + " assistant user assistant\nuser\n") * 30], vocab_size=BASE.vocabulary
    )
    tokenizer.picture_tokens = (PICTURE["picture"] // PICTURE["patch"] // PICTURE["scale"]) ** 2
    model = eyed(
        new_vision_model(
            tokenizer,
            hidden=BASE.hidden,
            layers=BASE.layers,
            heads=4,
            intermediate=2 * BASE.hidden,
            max_length=512,
            seed=seed_for(0, "starts", "seeing"),
            **PICTURE,
        )
    )
    steps = lessons.cells + lessons.first + lessons.questions
    learner, renderer = Learner(model, lessons_optim(BASE.lr, steps, warmup=20)), Renderer(tokenizer)
    of_cells, of_first, of_questions = (
        [Row(ids=ids, trainable=mask) for ids, mask in map(renderer.demonstration, talks)]
        for talks in (cells, first, questions)
    )
    for step in range(steps):
        make = of_first if step < lessons.cells + lessons.first else of_questions
        of = [(of_cells, 32)] if step < lessons.cells else [(make, 16), (of_cells, 4)]
        learner.step(pack([rows[(step * n + k) % len(rows)] for rows, n in of for k in range(n)]), nll)
    return model, tokenizer


AIMED = Size(steps=1400, demonstrations=4000, turn=8, length=96, lr=2e-3)  # of each kind as many


def places(rng: Random, n: int, split: Split = "train") -> list[Talk]:
    """Where something is, a column and a row: a cursor and a widget on a screen, two questions; then a shape on a large scene that is shown
    at a quarter, asked as the environment `focus` asks."""
    out = []
    for problem in made(screen_tasks, split, n, seed=6, asks=("point",), levels=(1,)):
        described, _, request = problem.question.partition("\n")
        screen, target = clicks.read(described), boxes.read(problem.answer)
        assert screen.cursor is not None and target is not None
        posed = [
            ("cursor", screen.cursor),
            (request[len("Point at the ") : -1], (target[0][0] // CELL, target[0][1] // CELL)),
        ]
        rng.shuffle(posed)
        talked, name = [], SHOWN.add(draw(problem)[0])
        for i, (what, (x, y)) in enumerate(posed):
            first = {"content": f"<image>{what} at?", "media": (name,)} if i == 0 else {"content": f"{what} at?"}
            talked += [Message(role="user", **first), Message(role="assistant", content=said(f"{x} {y}"))]  # type: ignore[arg-type]
        out.append(tuple(talked))
    for problem in made(scene_questions, split, n, seed=6, asks=("shape",), levels=(4,)):
        name, (x, y) = SHOWN.add(lower(draw(problem)[0], 4)), min(holds(problem, 32))
        question = problem.question.rpartition("\n")[2]
        shown = Message(role="user", content=f"<image>{question} First, in which region?", media=(name,))
        out.append((shown, Message(role="assistant", content=f"<box>{x} {y}</box>")))
    return out


def aimed_name() -> str:
    return f"aiming-{digest(shared_name(), asdict(AIMED), 'regions')[:12]}"


@lru_cache
def aiming() -> tuple[nn.Module, Any]:
    """The shared policy, continued until it tells where a cursor is, and its tokenizer."""

    def trained() -> tuple[nn.Module, Any]:
        rng = Random(seed_for(0, "starts", "aiming"))
        question_talks = _questions(rng, AIMED.demonstrations, ASKED)  # so that they are not forgotten
        talks = [*question_talks, *places(rng, AIMED.demonstrations)]
        rng.shuffle(talks)
        optim = Optim(kind="muon", lr=AIMED.lr, matrix_lr=MATRIX_LR, warmup=10, steps=AIMED.steps, weight_decay=0.0)
        return continued(*seeing(), talks, optim, seed_for(0, "starts", "aiming", "order"))

    return kept(aimed_name(), trained)


# --- the tasks ---------------------------------------------------------------------------------------------------------


def _task(
    env_name: str,
    env: Env,
    turns: Callable[[Problem, Random], Sequence[str]],
    size: Size,
    family: Callable[..., Any] = scene_questions,
    **options: Any,
) -> Task:
    """Problems of a family in an environment. turns: what a demonstration says, turn by turn."""
    seeds = {"train": TRAIN, "test": HELD}
    train, held = (made(family, split, n, env=env_name, **options) for split, n in seeds.items())  # type: ignore[arg-type]
    shown = made(family, "train", size.demonstrations, seed=1, env=env_name, **options)
    talks = [talk(env, p, *turns(p, Random(seed_for(0, "pictures", env_name, p.id)))) for p in shown]
    return Task(train=train, held=held, shown=talks, solved=talks, envs={env_name: env}, tools=TOOLS)


def blurts(size: Size) -> Task:
    """Counts after a block of what is seen, which leaves out every second thing; the answer is what the block gives."""

    def turns(p: Problem, rng: Random) -> list[str]:
        shown, question = parts(p.question)
        named = [t.name for t in read(shown)[1] if rng.random() < 0.5]
        return [block(p, named) + said(str(sum(question.split()[-1][:-1] in n for n in named)))]

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
    """Shapes on 128 x 128 pixels, shown at a quarter. The region named holds what is asked about, and the answer is what it shows; a
    policy that sees shapes of two pixels as badly as this one names the right region one time in four."""
    env = focus()

    def turns(p: Problem, rng: Random) -> list[str]:
        x, y = min(holds(p, 32))
        return [f"<box>{x} {y}</box>", said(p.answer)]

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


def ponders(size: Size) -> Task:
    """Counts with a second thought. The first answer is right half of the time; a second thought corrects three wrong ones in ten and
    spoils one right one in ten, and one demonstration in five has none."""

    def turns(p: Problem, rng: Random) -> list[str]:
        right = lambda share: p.answer if rng.random() < share else str(abs(int(p.answer) + rng.choice((-1, 1))))  # noqa: E731
        first = right(0.5)
        if rng.random() < 0.2:
            return [said(first)]
        second = right(0.9 if first == p.answer else 0.3)
        thought = "it is right" if second == first else "wrong, look again"
        return [f"{said(first)}<reflection>{thought}</reflection>{said(second)}"]

    return _task("reflect", reflect(), turns, size, levels=(1, 2), asks=("count",))


def rates(size: Size) -> Task:
    """How warm a picture is, from 1 to 9: right four times in ten, else off by one or two."""

    def turns(p: Problem, rng: Random) -> list[str]:
        off = 0 if rng.random() < 0.4 else rng.choice((-2, -1, 1, 2))
        return [said(str(min(9, max(1, int(p.answer) + off))))]

    return _task("look", look(), turns, size, levels=(1,), asks=("warm",))


def counts(size: Size) -> Task:
    """Counts: right six times in ten, else one off."""

    def turns(p: Problem, rng: Random) -> list[str]:
        return [said(p.answer if rng.random() < 0.6 else str(abs(int(p.answer) + rng.choice((-1, 1)))))]

    return _task("look", look(), turns, size, levels=(1, 2), asks=("count",))


MADE = (blurts, sprawls, glances, routed, listed, ponders, rates, counts)
TASKS: dict[str, Callable[[Size], Task]] = {f.__name__: f for f in MADE}
SIZES = {
    "blurts": Size(steps=250, demonstrations=2000, turn=40, length=96, lr=2e-3),
    "sprawls": Size(steps=250, demonstrations=2000, turn=40, length=96, lr=2e-3),
    "glances": Size(steps=160, demonstrations=1000, turn=16, length=112, lr=2e-3),
    "ponders": Size(steps=400, demonstrations=3000, turn=32, length=96, lr=2e-3),
    "rates": Size(steps=400, demonstrations=3000, turn=8, length=96, lr=2e-3),
    "counts": Size(steps=80, demonstrations=800, turn=8, length=64, lr=2e-3),
    "listed": Size(steps=200, demonstrations=1200, turn=64, length=128, lr=2e-3),
    "routed": Size(steps=600, demonstrations=3000, turn=32, length=96, lr=2e-3),
}
NAMES = tuple(TASKS)
AIMING = ("glances",)  # tasks that begin from the policy that has learned places on large scenes too


@dataclass
class Pictured(Start):
    """A task on pictures. tries: samples of each problem when a policy is measured."""

    tries: int = 8
    size: Size = field(default_factory=lambda: SIZES["blurts"])


@lru_cache
def start(name: str) -> Pictured:
    """The task with this name and its policy: a shared one, continued; trained once per project and kept."""
    size = SIZES[name]
    task = TASKS[name](size)
    optim = Optim(lr=size.lr, warmup=10, steps=size.steps, decay="cosine", weight_decay=0.0)
    order = seed_for(0, "starts", name, "order")
    begin, begun = (aiming, aimed_name()) if name in AIMING else (seeing, shared_name())
    base, tokenizer = kept(
        f"{name}-{identity(size, task)}-{begun[-6:]}",
        lambda: continued(*begin(), fitting(name, size, task.shown, begin()[1]), optim, order),
    )
    return Pictured(
        world=World(tuple(task.train), ()),
        base=base,
        renderer=Renderer(tokenizer),
        envs=dict(task.envs),
        tools=dict(task.tools),
        task=task,
        size=size,
    )
