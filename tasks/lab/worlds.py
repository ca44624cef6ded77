"""Shared code of the small worlds of preference data: a `Room` on disk in which stages of the pipeline run, and
`Place`s, which write its data and measure the result."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from synth.knowledge.kb import Passage
from synth.types import Message, PreferencePair, Problem, seed_for
from tasks.lab.arena import Arena, Known, World, _demonstrations, tokenizer
from tasks.planning import code as src
from tasks.planning.pieces import bind_all, locate
from tasks.planning.resolve import check_params, overlaid, resolve
from tasks.runtime.stage import Stage
from tasks.storage import commit, tables
from training.learner.learner import Learner, Optim, nll, score
from training.learner.pack import Row, pack
from training.model.model import load_model, new_model, save_model

SMALL = {
    "prefer": {
        "optimizer": {"lr": 3e-3, "warmup": 0},
        "sampling": {"max_turn_tokens": 16},
        "max_length": 192,
        "checkpoint_every": 1000,
        "include_families": False,
        "envs": [{"piece": "single"}],
        "lora": {},
    },
    "reward": {
        "optimizer": {"lr": 3e-3, "warmup": 0},
        "sampling": {"max_turn_tokens": 16},
        "max_length": 192,
        "checkpoint_every": 1000,
        "envs": [{"piece": "single"}],
    },
    "rl": {"checkpoint_every": 1000},
}


@dataclass
class Room:
    """A folder in which the stages of a recipe run.

    root      of the project in miniature             seed     of the pairs and of the stages
    kept      what the world keeps for `measure`      cards    stage -> the card it wrote
    """

    root: Path
    seed: int
    recipe: str
    kept: dict[str, Any] = field(default_factory=dict)
    cards: dict[str, Any] = field(default_factory=dict)

    def write(self, stage: str, **files: Sequence[Any]) -> None:
        """Seal artifacts/<stage> with tables of the values given under their names; an empty one takes the type that
        its name has."""
        folder = self.root / "artifacts" / stage
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in files.items():
            tables.write(folder / f"{name}.parquet", list(values), type(values[0]) if values else _TYPES[name])
        commit.seal(folder)

    def stand(self, stage: str, folder: Path) -> None:
        """Links artifacts/<stage> to this sealed folder."""
        (self.root / "artifacts").mkdir(exist_ok=True)
        (self.root / "artifacts" / stage).symlink_to(folder)

    def pairs(self, stage: str = "clean") -> list[PreferencePair]:
        return tables.read(self.root / "artifacts" / stage / "pairs.parquet", PreferencePair)

    def model(self, stage: str = "prefer") -> nn.Module:
        return load_model(self.root / "artifacts" / stage / "model")[0]


_TYPES = {"pairs": PreferencePair, "problems": Problem, "passages": Passage}


@dataclass(frozen=True)
class Place:
    """A world: it writes what the first stage reads, and measures what the last one wrote.

    stages   of the recipe, in order; nothing runs for the recipe "base"
    lay      (room) writes inputs and fills `room.kept`
    measure  (room) -> the numbers that a protocol may name
    make     in the place of the stage `preferences`, pairs by the recipe's makers; or of `sft`, a first policy
    """

    stages: tuple[str, ...]
    lay: Callable[[Room], None]
    measure: Callable[[Room], dict[str, float]]
    make: Callable[[Room, str, Any], None] | None = None


def plans(recipe: str, changes: Mapping[str, Mapping[str, Any]], steps: int) -> dict[str, Any]:
    """Stage -> its knobs, resolved from recipe and changes. Raises UserError as a plan does."""
    merged = {stage: {**SMALL.get(stage, {}), **({"steps": steps} if stage in SMALL else {})} for stage in SMALL}
    for stage, knobs in changes.items():
        merged[stage] = overlaid(merged.get(stage, {}), knobs)
    return resolve(check_params({"recipe": recipe, "set": merged}, Path("params.yaml")))[0]


def run_stage(
    room: Room, name: str, resolved: Any, change: Callable[[dict[str, Any]], dict[str, Any]] = lambda knobs: knobs
) -> None:
    """Runs one real stage in the room, on one thread. change: applied to its knobs, with pieces bound, before the stage
    is called."""
    needs = sorted({n for _, folder, piece in resolved.used for n in src.constant(locate(folder, piece), "NEEDS", ())})
    plan = {
        "params": resolved.params,
        "pieces": resolved.pieces,
        "settings": resolved.settings,
        "needs": needs,
        "seed": room.seed,
        "threads": 1,
        "recipe": room.recipe,
    }
    stage = Stage(name, plan=plan, root=room.root)
    with stage.running():
        stage.params = change(bind_all(resolved.pieces, resolved.params, resolved.settings))
        getattr(importlib.import_module(f"tasks.stages.{name}"), name)(stage, **stage.params)
    room.cards[name] = json.loads((stage.target / "card.json").read_text(encoding="utf-8"))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No lines of progress."""
    before = os.environ.get("ESPALIER_QUIET")
    os.environ["ESPALIER_QUIET"] = "1"
    try:
        yield
    finally:
        os.environ.pop("ESPALIER_QUIET") if before is None else os.environ.update(ESPALIER_QUIET=before)


def taught(world: World, *, layers: int = 1, run: int = 0, steps: int = 160) -> Arena:
    """The world with a policy that says what it wants said; `run` 1 starts from the same weights, and a bootstrap of
    the answers teaches it."""
    renderer = Known(tokenizer())
    model = new_model(
        tokenizer(),
        hidden=48,
        layers=layers,
        heads=2,
        kv_heads=1,
        intermediate=64,
        max_length=192,
        init_range=0.1,
        seed=seed_for(0, "pair worlds"),
    )
    rng = np.random.default_rng(seed_for(run, "bootstrap"))
    drawn = tuple(
        tuple(replace(s, share=s.share * float(rng.gamma(4.0)) / 4) for s in utterances) for utterances in world.said
    )
    batch = _demonstrations(replace(world, said=drawn) if run else world, renderer)
    learner = Learner(model, Optim(lr=1e-2, warmup=10, steps=steps, decay="cosine", weight_decay=0.0))
    for _ in range(steps):
        learner.step(batch, nll)
    return Arena(world=world, base=model, renderer=renderer)


@lru_cache
def _folder() -> Path:
    kept = tempfile.TemporaryDirectory()
    _ALIVE.append(kept)
    return Path(kept.name)


_ALIVE: list[Any] = []  # folders that last as long as the process


def as_sft(name: str, first: Arena, second: Arena | None = None) -> Path:
    """A sealed folder as the stage sft writes it: model, and base (another run of the same training, if given)."""
    folder = _folder() / name
    if not folder.exists():
        folder.mkdir()
        save_model(first.base, tokenizer(), folder / "model")
        save_model((second or first).base, tokenizer(), folder / "base")
        commit.seal(folder)
    return folder


def sums_of(arena: Arena, model: nn.Module, problems: Sequence[tuple[Sequence[Message], str]]) -> np.ndarray:
    """[n] log-probability of each text after its prompt."""
    rows = []
    for prompt, text in problems:
        start = arena.renderer.prompt(list(prompt))
        ids = np.concatenate([start, arena.renderer.turn(text)])
        rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(start)))
    batch = pack(rows)
    return batch.row_sum(score(model, batch).logp).double().numpy()


def different(
    n: int, draw: Callable[[Mapping[str, PreferencePair]], PreferencePair | None], world: str
) -> list[PreferencePair]:
    """n pairs of different content; of equal pairs the last is kept. draw: receives the pairs found so far by id; None
    means no pair.

    Raises ValueError if hundreds of draws per pair do not yield n: the world has fewer."""
    pairs: dict[str, PreferencePair] = {}
    for _ in range(500 * n):
        if (p := draw(pairs)) is not None:
            pairs[p.id] = p
        if len(pairs) == n:
            return list(pairs.values())
    raise ValueError(f"the world {world} draws {len(pairs)} different pairs, not {n}: lower n")
