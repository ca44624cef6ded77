"""Behavioural checks: does a recipe do to a policy what it says, compared with another recipe on the same seeds?

A protocol is written beside the recipe, under the key `behaviour`, and committed before it is run:

    claim       the sentence that is tested
    task        a world of tasks/methods/arena.py
    metric      a number of `arena.measure` at the end; "auc" (mean reward over all steps), "spread" (mean gradient norm of the steps), "mute" (share of groups whose rewards are all equal), "rollout_tokens" (tokens sampled, mean per step)
    direction   higher | lower: this recipe's against the other's
    against     a recipe, or `base`: the policy before training
    set, against_set, both      changes of knobs of `rl` for this recipe, for the other, for both
    steps, seeds                40 and 8 unless said

Evidence (flows/recipes/evidence/<id>.json) holds the protocol, the values of every seed, and the mean difference with its 95 % interval
(Student's t over paired seeds). Seeds are 1, 2, ...; a pair shares its seed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from synth.types import digest, seed_for
from tasks.errors import UserError, nearest
from tasks.planning import code as src
from tasks.planning.pieces import bind_all, locate
from tasks.planning.resolve import check_params, read_recipe, resolve

KEYS = {"claim", "task", "metric", "direction", "against", "set", "against_set", "both", "steps", "seeds"}
METRICS = {"auc", "spread", "mute", "rollout_tokens", "pass1", "pass8", "right_kinds", "entropy", "length", "honest", "think", "hard",
           "easy", "hard_nll", "think_gap"}  # fmt: skip
SMALL = {"prompts_per_step": 8, "samples_per_prompt": 8, "lr": 3e-3, "warmup": 0, "decay": "constant", "max_turn_tokens": 16,
         "max_tokens": 128, "max_unscorable": 1.0, "epochs": 1, "minibatches": 1, "families": False}  # fmt: skip
SAMPLES = 64  # of each problem, when a policy is measured


def protocol_of(name: str) -> dict[str, Any]:
    """The behavioural protocol of a recipe with its defaults filled in. Raises UserError where it is missing or malformed."""
    given = read_recipe(name).get("behaviour")
    if not given:
        raise UserError(f"the recipe {name} has no behavioural check: write one under its key `behaviour` (docs/recipes.md says how)")
    for key in given:
        if key not in KEYS:
            raise UserError(f"recipe {name}: behaviour.{key}: unknown key: {nearest(key, KEYS)}")
    full = {"steps": 40, "seeds": 8, "set": {}, "against_set": {}, "both": {}, "against": "grpo"} | given
    for key, valid in (("metric", METRICS), ("direction", {"higher", "lower"})):
        if full.get(key) not in valid:
            raise UserError(f"recipe {name}: behaviour.{key} is {full.get(key)!r}: {nearest(str(full.get(key)), valid)}")
    return full


def knobs_of(recipe: str, changes: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], frozenset[str]]:
    """Every knob of `rl` as recipe and changes resolve it, pieces bound, and what the pieces need. Raises UserError as a plan does."""
    params = check_params({"recipe": recipe, "set": {"rl": {**changes}}}, path)
    stage = resolve(params)[0]["rl"]
    needs = frozenset(n for _, folder, name in stage.used for n in src.constant(locate(folder, name), "NEEDS", ()))
    return bind_all(stage.pieces, stage.params), needs


def prepared(task: str, recipe: str, changes: Mapping[str, Any], steps: int, seed: int) -> tuple[Any, Any]:
    """The recipe put together in a world, and its player; nothing has run yet."""
    from tasks.methods.arena import arena
    from training.compose import compose
    from training.learner import Optim

    here = arena(task)
    knobs, needs = knobs_of(recipe, {**SMALL, **changes}, Path("params.yaml"))
    player = here.player(**knobs)
    optim = partial(Optim, warmup=0, decay="constant", weight_decay=0.0, max_grad_norm=knobs["max_grad_norm"])
    names = ("prompts_per_step", "samples_per_prompt", "tokens_per_microbatch", "epochs", "minibatches", "refill", "max_unscorable",
             "critic", "critic_lambda", "critic_warmup", "turn_budget", "guides", "curriculum", "filters", "rewards", "advantage", "ratio",
             "corrections", "surrogate", "regularisers")  # fmt: skip
    made = compose(
        policy=player.sampler.model, reference=here.copy() if "reference" in needs else None, body=here.copy, player=player,
        problems=list(here.world.problems), needs=needs, seed=seed_for(seed, "behaviour", task), device="cpu", steps=steps,
        optim=optim(lr=knobs["lr"], steps=steps), critic_optim=optim(lr=max(knobs["critic_lr"], 3e-3), steps=steps),
        **{k: knobs[k] for k in names},
    )  # fmt: skip
    return made, player


def train(task: str, recipe: str, changes: Mapping[str, Any], steps: int, seed: int) -> dict[str, float]:
    """One seed of one recipe in one world: the numbers that a protocol may name. `recipe` "base" trains nothing."""
    import numpy as np

    from tasks.methods.arena import measure
    from training.rounds import run

    made, player = prepared(task, "" if recipe == "base" else recipe, changes, 0 if recipe == "base" else steps, seed)
    rows = [metrics for _, _, metrics in run([made.round], made.roles)]
    groups = player.play(made.experience.problems, SAMPLES, seed_for(seed, "behaviour", task, "measure"))
    mean = lambda name: float(np.mean([r[name] for r in rows if name in r] or [math.nan]))  # noqa: E731
    return measure(groups) | {
        "auc": mean("reward"), "spread": mean("grad_norm"), "mute": mean("solve_none") + mean("solve_all"),
        "rollout_tokens": mean("tokens") + (mean("guide_tokens") if rows and "guide_tokens" in rows[0] else 0.0),
    }  # fmt: skip


@lru_cache(maxsize=4096)
def _trained(task: str, recipe: str, changes: str, steps: int, seed: int) -> dict[str, float]:
    """`train`, once per process for the same arguments: many protocols compare with the same runs of the same recipe."""
    return train(task, recipe, json.loads(changes), steps, seed)


def behave(name: str, *, progress: Any = lambda text: None) -> dict[str, Any]:
    """Run the protocol of a recipe; returns its evidence."""
    protocol = protocol_of(name)
    began = time.monotonic()
    values: list[tuple[float, float]] = []
    for seed in range(1, protocol["seeds"] + 1):
        pair = []
        for recipe, changes in ((name, protocol["set"]), (protocol["against"], protocol["against_set"])):
            found = _trained(protocol["task"], recipe, json.dumps({**protocol["both"], **changes}, sort_keys=True), protocol["steps"], seed)
            if protocol["metric"] not in found:
                has = nearest(protocol["metric"], found)
                raise UserError(f"recipe {name}: the world {protocol['task']} does not measure {protocol['metric']}: {has}")
            pair.append(found[protocol["metric"]])
        values.append((pair[0], pair[1]))
        progress(f"{name}: seed {seed} of {protocol['seeds']}: {pair[0]:.4g} against {pair[1]:.4g}")
    effect = summary([a - b for a, b in values])
    sign = 1 if protocol["direction"] == "higher" else -1
    return {
        "recipe": name,
        "protocol": protocol,
        "protocol_digest": digest(protocol)[:16],
        "values": [{"seed": i + 1, "this": a, "against": b} for i, (a, b) in enumerate(values)],
        "effect": effect,
        "holds": bool(min(sign * effect["low"], sign * effect["high"]) > 0),
        "seconds": round(time.monotonic() - began, 1),
    }


def summary(differences: list[float]) -> dict[str, float]:
    """Mean of paired differences with the 95 % interval of Student's t."""
    import numpy as np
    from scipy.stats import t

    d = np.array(differences)
    half = float(t.ppf(0.975, len(d) - 1) * d.std(ddof=1) / math.sqrt(len(d))) if len(d) > 1 else math.inf
    return {"mean": float(d.mean()), "low": float(d.mean()) - half, "high": float(d.mean()) + half, "n": len(d)}


def evidence_path(name: str) -> Path:
    from tasks.planning.resolve import yaml_files

    return yaml_files("flows.recipes")[name].parent / "evidence" / f"{name}.json"


def write(evidence: Mapping[str, Any]) -> Path:
    """Write evidence to its file. What an earlier protocol showed stays in it, under `earlier`: a protocol changed after a look is seen."""
    path = evidence_path(evidence["recipe"])
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["protocol_digest"] != evidence["protocol_digest"]:
            kept = {k: before[k] for k in ("protocol", "protocol_digest", "effect", "holds", "seconds")}
            evidence = {**evidence, "earlier": [*before.get("earlier", []), kept]}
        elif "earlier" in before:
            evidence = {**evidence, "earlier": before["earlier"]}
    path.write_text(json.dumps(evidence, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path
