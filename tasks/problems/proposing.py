"""Assembles the rounds in which a proposer learns: it imitates a program, then solver and proposer learn in turn.

    imitate     the proposer learns to say specs, from those of a program at random levels (fine-tuning)
    solve       the solver learns by RL on the pool of certified problems
    propose     the proposer learns by RL: its proposals are certified, attempted by the solver of that moment, and paid

All rounds are one list for `training.learner.loop`, with one checkpoint: a killed run resumes where it was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from synth.selfplay.loop import Cell, cells
from synth.selfplay.propose.ladder import drawn
from synth.selfplay.spec import Family, certify
from synth.types import Message, Problem, Sampling, digest, seed_for
from tasks.core.errors import UserError
from tasks.planning.pieces import bind
from tasks.runtime.stage import Stage
from tasks.runtime.train_loop import Curve, drive, make_repeatable
from tasks.problems.selfplay import registry
from tasks.problems.trained import context
from tasks.storage import tables
from tasks.storage.commit import read_object
from training.env.propose import propose
from training.env.single import single
from training.learner.learner import Learner, Optim, nll
from training.learner.loop import Round, Source
from training.learner.policies import Policies
from training.learner.rows import demonstration_row, weighted
from training.model.model import load_model, save_model
from training.model.render import Renderer
from training.rl.experience import Experience
from training.rl.objective import PolicyObjective
from training.rl.proposer import Pool, Proposing
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler


def learn(
    root: Path,
    params: Mapping[str, Any],
    *,
    model: str,
    seed: int,
    rounds: int = 2,
    imitate: int = 60,
    solve: int = 20,
    propose_steps: int = 10,
    prompts: int = 8,
    samples: int = 8,
    lr: float = 5e-4,
    max_turn_tokens: int = 64,
    checkpoint_every: int = 10,
    lora: int = 0,
    out: Path | None = None,
) -> Path:
    """Trains solver and proposer, which start from `model` (a folder in Hugging Face layout), and writes the folder
    `out` (None: artifacts/selfplay): solver/, proposer/, problems.parquet (the pool), curve.csv, card.json. Returns that
    folder.

    params: the parameters of the stage `problems`, with pieces bound. lora: rank of the two adapters on one frozen
    base; with 0 the two are copies of the model, and all their weights learn. Raises UserError if the parameters name
    no families, or no reward for proposals, or if `out` holds anything but an earlier result of this function.
    """
    if out is not None and not _ours(out):
        raise UserError(
            f"{out} holds something else than solver and proposer of an earlier run, and would be replaced: name a new folder"
        )
    if params["pay"] is None:
        raise UserError(
            "this recipe does not say what a proposal earns: take one that plays, such as --recipe socratic-zero"
        )
    families = registry(params["families"])
    names = sorted(families)
    plan = {
        "seed": seed,
        "params": {
            "model": model,
            "rounds": rounds,
            "steps": [imitate, solve, propose_steps],
            "families": names,
            "pay": [params["pay"].piece, params["pay"].keywords],
            "sizes": [prompts, samples, lr, max_turn_tokens, *([lora] if lora else [])],
        },
    }
    stage = Stage("selfplay", plan=plan, root=root, deps=[], target=out)
    with stage.running():
        make_repeatable(stage, "cpu")
        roles, players, renderer, tokenizer = _roles(model, lr, max_turn_tokens, lora, seed)
        pool = Pool(_first(families, seed, 4))
        proposing = Proposing(
            player=players["proposer"],
            solver=players["solver"],
            pool=pool,
            attempts=params["attempts"],
            certify=partial(certify, families=families, seed=seed),
        )
        contexts = [context(name) for name in names]
        sizes = {
            "samples_per_prompt": samples,
            "advantage": bind("advantage", {"piece": "grpo"}),
            "curriculum": bind("curriculum", {"piece": "uniform"}),
            "max_unscorable": 1.0,
        }
        solving = Experience(
            problems=pool.problems,
            player=players["solver"],
            prompts_per_step=prompts,
            seed=seed_for(seed, "selfplay", "solve"),
            policies=["solver"] if lora else [],
            **sizes,
        )
        asking = Experience(
            problems=contexts,
            player=proposing,  # type: ignore[arg-type]  # plays as a Player does
            prompts_per_step=min(prompts, len(contexts)),
            rewards=[params["pay"]],  # type: ignore[arg-type]
            seed=seed_for(seed, "selfplay", "propose"),
            policies=["proposer"] if lora else [],
            **sizes,
        )
        objective = PolicyObjective(
            ratio=bind("ratio", {"piece": "token"}), policy_loss=bind("policy_loss", {"piece": "clip"})
        )
        plan_of = [
            Round(
                name="imitate",
                role="proposer",
                steps=imitate,
                objective=nll,
                source=imitation(cells(families, seed), renderer, seed),
            )
        ]
        for r in range(rounds):
            for role, source, steps in (("solver", solving, solve), ("proposer", asking, propose_steps)):
                plan_of.append(
                    Round(
                        name=f"{'solve' if role == 'solver' else 'propose'} {r + 1}",
                        role=role,
                        steps=steps,
                        objective=objective,
                        source=_from(source, r * steps),
                        prepare=objective.prepare,
                    )
                )
        curve = Curve(stage, sum(p.steps for p in plan_of), shown=("reward", "nll"))
        drive(plan_of, roles, curve, every=checkpoint_every, parts={"pool": pool, "solving": solving, "asking": asking})
        curve.close()
        for role, player in players.items():
            save_model(player.sampler.model, tokenizer, stage.out / role, adapters=role)
        tables.write(stage.out / "problems.parquet", pool.problems, Problem)
        stage.card(
            {
                "problems": len(pool.problems),
                "rounds": rounds,
                "families": names,
                "pool": digest([p.id for p in pool.problems]),
                "told": told(curve.rows),
            }
        )
    return stage.target


def _ours(folder: Path) -> bool:
    """Whether the folder is not there, is empty, or holds what `learn` wrote."""
    if not folder.exists():
        return True
    told = folder / "card.json"
    return folder.is_dir() and (
        not any(folder.iterdir()) or told.is_file() and read_object(told).get("stage") == "selfplay"
    )


def _roles(
    model: str, lr: float, max_turn_tokens: int, lora: int, seed: int
) -> tuple[dict[str, Any], dict[str, Player], Renderer, Any]:
    """Two copies of the model, or two adapters of that rank on one model, each with its learner and its player."""
    learners, players = {}, {}
    optim = Optim(lr=lr, warmup=5, steps=10**6, weight_decay=0.0)
    policy, tokenizer = load_model(model, dtype="float32", device="cpu")
    renderer = Renderer(tokenizer)
    team = Policies(policy) if lora else None
    for role in ("solver", "proposer"):
        if team is not None:
            learners[role] = team.create(role, {"rank": lora}, seed=seed_for(seed, "selfplay", role), optim=optim)
        else:
            policy, _ = load_model(model, dtype="float32", device="cpu")
            learners[role] = Learner(policy, optim)
        players[role] = Player(
            sampler=TorchSampler(policy, renderer.end_id),
            renderer=renderer,
            envs={"single": single(), "propose": propose()},
            sampling=Sampling(temperature=1.0, max_tokens=max_turn_tokens),
            plays={"": role} if team is not None else {},
        )
    return learners, players, renderer, tokenizer


def _first(families: Mapping[str, Family], seed: int, each: int) -> list[Problem]:
    """The pool at the start: `each` problems of every family at its first level."""
    drawn = (f.make(seed, "train", i, levels=[1]) for _, f in sorted(families.items()) for i in range(each))
    return [p for p in drawn if isinstance(p, Problem)]


def _from(source: Experience, first: int) -> Source:
    return lambda step: source(first + step)


def imitation(
    known: Sequence[Cell], renderer: Renderer, seed: int, rows: int = 16
) -> Callable[[int], tuple[list, dict]]:
    """step -> a batch of demonstrations: the spec of an item of a random cell of `known`, a family at a level."""

    def at(step: int) -> tuple[list, dict]:
        rng = np.random.default_rng(seed_for(seed, "selfplay", "imitate", "", step))
        demonstrations = []
        for _ in range(rows):
            cell = known[int(rng.integers(len(known)))]
            reply = Message(role="assistant", content=f"<answer>{_short(drawn(cell, rng))}</answer>")
            demonstrations.append(demonstration_row(renderer, [*context(cell.family).prompt, reply], 0.2))
        return [weighted(demonstrations, "cpu")], {}

    return at


def _short(spec: str) -> str:
    """A spec with a draw below 1000: a small model needs fewer tokens for it."""
    values = json.loads(spec)
    return json.dumps(values | {"draw": values["draw"] % 1000})


def told(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line per round: its name, and the mean reward (or nll) over its steps."""
    out: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        held = out.setdefault(str(row["round"]), {})
        for k in ("reward", "nll"):
            if k in row and not math.isnan(row[k]):
                held.setdefault(k, []).append(float(row[k]))
    return [
        {"round": name, **{k: round(float(np.mean(v)), 4) for k, v in values.items()}} for name, values in out.items()
    ]
