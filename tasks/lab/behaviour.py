"""Behavioural checks: does a recipe do to a policy what it says, compared with another recipe on the same seeds?

A protocol is written beside the recipe, under the key `behaviour`, and committed before it is run:

    claim       the sentence that is tested
    kind        what kind of evidence this is: a word of KINDS, which defines them
    task        a world of tasks/lab/arena.py, of episodes.py (conversations) or of starts.py (real problems: training
                ends where as many samples were drawn as the steps need without refills, and the metric is of problems of
                the test split), or of clip_worlds.py and picture_worlds.py (clips, screens and pictures, likewise); or, for
                recipes of preference data, of pair_worlds.py and label_worlds.py beside them: the metric is then one
                that the docstring of `measure` names there, and changes are by stage, {prefer: {optimizer: {lr: 1e-3}}}. With such
                changes a world of arena.py or episodes.py is learned from pairs that the policy samples in it.
                Of decoders: a world of decode_worlds.py, which measures the first of the recipe's, changes under
                {evaluate: ...}; or of answer_worlds.py, at equal forward tokens on a task of starts.py. `control`: the world of numbers of the recipe,
                changes under {rl: ...}, and a metric of control_worlds.py
                Of merges: a world of merge_worlds.py, likewise of the first of evaluate.merges
    metric      a number of `arena.measure` (samples) or `arena.exactly` (no samples) at the end; `part.NAME`, the mean
                of a part of the scores (samples); or of the steps: "auc" (mean reward), "spread" (mean gradient norm),
                "mute" (share of groups whose rewards are all equal), "signal" (share of the groups trained on that have
                any advantage), "nonzero_advantage" (share of their rollouts that have), "practice" (share of the
                rollouts that were of hard problems), "rollout_tokens" (tokens sampled) where `both` sets optimizer.lr to 0, so
                that no step moves the policy: "agreement" (mean cosine between the gradients of two steps), "truth" (in
                a world whose sampler rounds: cosine of the mean gradient with that of the same rollouts' worth sampled
                from the learner's own weights, uncorrected)
    direction   higher | lower: this recipe's against the other's
    margin      for a claim that something costs nothing: how much worse than the other this recipe may be (0 unless
                said)
    against     a recipe, or `base`: the policy before training
    set, against_set, both      changes of knobs of `rl` for this recipe, for the other, for both
    steps, seeds                40 and 8 unless said

Evidence (flows/recipes/evidence/<id>.json) holds the protocol, the values of every seed, the mean difference with
its 95 % interval (Student's t over paired seeds), the recipe's own constants (`constants_of`), and the digest of the pieces that
ran (`code_of`; `espalier check NAME --evidence` compares it with today's). Seeds are 1, 2, ...; a pair shares its seed. Where a constant of the recipe has changed since, docs/METHODS.md says so. Where all seeds give the same difference they are one draw and not n: that is refused.

A protocol runs the constants that the recipe ships. One that changes knobs which the recipe itself sets (`changed`) is evidence of
the pieces and not of the recipe, says so in its claim, and is counted apart in docs/METHODS.md.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from synth.types import digest, seed_for
from tasks.core.errors import UserError, nearest
from training.metrics import half_width
from tasks.planning import code as src
from tasks.planning.kinds import settled, slots
from tasks.planning.pieces import bind_all, locate
from tasks.planning.resolve import Resolved, check_params, overlaid, read_recipe, recipe_layers, resolve

# A judgement about a protocol, and no part of what is run: evidence and its digest are without it.
KINDS = {
    "tautological": "what is measured is the very quantity that the method's piece puts into the loss, the reward or the data: a length penalty "
    "shortens, an entropy bonus raises entropy, a filter removes what it filters",
    "weak": "what is measured is another quantity, but the world was built so that the method's assumption holds, or the rival lacks an input that "
    "the method gets (demonstrations, hints, an oracle, more parts of the reward), or the control differs in samples, chooses at random or has not "
    "been trained",
    "substantive": "an outcome that the paper claims (success on what was not trained on, quality, robustness, harm, regret), against the nearest rival "
    "at equal samples, that could well have come out the other way",
    "conformance": "no behaviour, but tests that show equal results (key `shown`)",
}
KEYS = {
    "claim",
    "kind",
    "task",
    "metric",
    "direction",
    "margin",
    "against",
    "set",
    "against_set",
    "both",
    "steps",
    "seeds",
}
SAMPLED = {
    "pass1",
    "pass8",
    "right_kinds",
    "entropy",
    "length",
    "honest",
    "think",
    "short",
    "answered",
    "turns",
    "share",
    "hard",
    "easy",
    "hard_nll",
    "think_gap",
    "follows",
    "spurious",
}
METRICS = SAMPLED | {
    "auc",
    "spread",
    "mute",
    "signal",
    "nonzero_advantage",
    "practice",
    "rollout_tokens",
    "agreement",
    "truth",
    "right",
    "hard_gain",
    "tilt",
    "kinds",
    "answer_entropy",
    "kl",
    "miscalibration",
    "home",
    "away",
    "mismatch",
    "ratio",
    "rank_me",
}
OF_PAIRS = {
    "gold",
    "order",
    "strength",
    "chosen",
    "rejected",
    "margin",
    "fooled",
    "elsewhere",
    "apart",
    "floor",
    "regret",
    "swap",
    "obeys",
    "steer",
    "asked",
    "kept",
    "second",
    "solved",
    "recovers",
    "pits",
    "gap_error",
    "known",
    "utility",
    "gain",
    "better",
    "unsafe",
    "wrong",
    "caught",
    "false",
    "accuracy",
    "ages",
    "best",
    "lost",
    "rated",
    "bias",
    "accuses",
    "ranks",
    "passes",
    "unseen",
    "translated",
    "earliest",
    "tail",
    "head",
}
OF_CONTROL = {"success", "stage", "return", "rate", "eaten", "trapped", "shd", "env_steps", "joint", "welfare", "slope"}
OF_DECODERS = {"wanted", "surprise", "forward_tokens", "tokens_per_pass"}
OF_MERGES = {"old", "new", "both"}
METRICS |= OF_PAIRS | OF_CONTROL | OF_DECODERS | OF_MERGES | {"thought", "corrected", "greedy"}
STAGES = ("sft", "preferences", "clean", "reward", "prefer", "rl", "evaluate")  # that changes may be by
SMALL = {
    "prompts_per_step": 8,
    "samples_per_prompt": 8,
    "optimizer": {"lr": 3e-3, "warmup": 0, "decay": "constant"},
    "sampling": {"max_turn_tokens": 16, "max_tokens": 128},
    "max_unscorable": 1.0,
    "include_families": False,
}
SIZES = {  # of the world
    "prompts_per_step",
    "sampling.max_turn_tokens",
    "sampling.max_tokens",
    "max_unscorable",
    "include_families",
    "envs",
    "steps",
}
BEFORE = {"epochs": 1, "minibatches": 1}  # what protocols also set before evidence had the key `code`
OF_NUMBERS = ("control", "horizons")  # worlds that run the stage rl as the recipe sets it, without SMALL
WHERE = ("behaviour", "on_task")  # keys of a recipe that hold a protocol: of a small world, and of a task of starts.py


def protocol_of(name: str, where: str = "behaviour") -> dict[str, Any]:
    """The protocol of a recipe under a key of WHERE, with its defaults filled in, without its kind. Raises UserError where it is
    missing or malformed."""
    given = read_recipe(name).get(where)
    if not given:
        raise UserError(
            f"the recipe {name} has no behavioural check: write one under its key `{where}` (docs/recipes.md says how)"
        )
    for key in given:
        if key not in KEYS:
            raise UserError(f"recipe {name}: {where}.{key}: unknown key: {nearest(key, KEYS)}")
    if (kind := given.get("kind")) is not None and kind not in (kinds := KINDS.keys() - {"conformance"}):
        raise UserError(f"recipe {name}: {where}.kind is {kind!r}: {nearest(str(kind), kinds)}")
    full = {"steps": 40, "seeds": 8, "set": {}, "against_set": {}, "both": {}, "against": "grpo"} | given
    full.pop("kind", None)
    for key, valid in (("metric", METRICS), ("direction", {"higher", "lower"})):
        if full.get(key) not in valid and not (key == "metric" and str(full.get(key)).startswith("part.")):
            raise UserError(f"recipe {name}: {where}.{key} is {full.get(key)!r}: {nearest(str(full.get(key)), valid)}")
    if full.get("margin", 0) < 0:
        raise UserError(
            f"recipe {name}: {where}.margin is {full['margin']}: say how much worse it may be as a number of 0 or more"
        )
    return full


def kind_of(name: str, where: str = "behaviour") -> str:
    """What kind of evidence the protocol of a recipe under a key of WHERE is, a word of KINDS; "" where it does not say."""
    recipe = read_recipe(name)
    if given := recipe.get(where):
        protocol_of(name, where)  # refuses what is no kind
        return str(given.get("kind", ""))
    return "conformance" if where == "behaviour" and recipe.get("shown") else ""


def changed(name: str, protocol: Mapping[str, Any], *, before: bool = False) -> list[str]:
    """The knobs that the recipe itself sets and that its protocol runs at other values, as "rl.lr"; sizes of the world do not
    count. before: as protocols ran when they also fixed the number of updates."""
    stages = _own(name)
    own = merged(protocol.get("both") or {}, protocol.get("set") or {})
    by_stage = {s: v for s, v in own.items() if s in STAGES}
    flat = {k: v for k, v in own.items() if k not in STAGES}
    if not by_stage and protocol.get("task") not in OF_NUMBERS:
        by_stage = {"rl": overlaid({**SMALL, **(BEFORE if before else {})}, flat)}
    differing = []
    for stage, knobs in sorted(by_stage.items()):
        shipped = stages.get(stage, {})
        for knob, value in sorted(settled(stage, knobs)):
            if knob not in SIZES and knob in shipped and _full(stage, knob, shipped[knob]) != _full(stage, knob, value):
                differing.append(f"{stage}.{knob}")
    return differing


def _own(name: str) -> dict[str, dict[str, Any]]:
    """Stage -> the knobs that a recipe and the recipes that it extends set."""
    stages: dict[str, dict[str, Any]] = {}
    for layer in recipe_layers(name):
        for stage, knobs in layer.stages.items():
            stages.setdefault(stage, {}).update(settled(stage, knobs or {}))
    return stages


def constants_of(name: str) -> dict[str, Any]:
    """The knobs that a recipe sets in the stages that a protocol can run, as "rl.minibatches", and their values. Which
    environments, and how much there is of anything, is the world's."""
    return {
        f"{stage}.{knob}": _full(stage, knob, value)
        for stage, knobs in sorted(_own(name).items())
        for knob, value in sorted(knobs.items())
        if (stage in ("clean", "reward", "prefer", "rl") or knob == "decoders") and knob not in SIZES
    }


def outdated(evidence: Mapping[str, Any]) -> list[str]:
    """The recipe's own knobs that have another value now than when its evidence was made. Evidence without the key
    `constants` is older than the key; of such, what the history shows to have changed was added."""
    then, now = evidence.get("constants") or {}, constants_of(evidence["recipe"])
    return sorted(k for k in then.keys() | (now.keys() if "code" in evidence else ()) if then.get(k) != now.get(k))


def _full(stage: str, knob: str, value: Any) -> Any:
    """A value of a recipe with all knobs of its pieces, which it need not name."""
    kind = slots()[stage].get(knob)
    if kind is None or value is None:
        return value
    if isinstance(value, list):
        return [_full(stage, knob, one) for one in value]
    spec = {"piece": value} if isinstance(value, str) else value
    if "piece" not in spec:
        return spec
    return {k.name: k.default for k in src.knobs(locate(kind, spec["piece"])).values()} | spec


def code_of(name: str) -> str:
    """16 hex digits of the code that is a recipe's own: the statements of all pieces in use in the stages that it sets, of the
    environments only if the recipe names them, as those of a protocol are its world's. What all recipes share (the stages, the
    trainer, the worlds) is left out: it changes each day, and its own tests say whether it still does the same."""
    stages = resolve(check_params({"recipe": name, "set": {}}, Path("params.yaml")))[0]
    own = _own(name)
    used = {
        locate(folder, piece)
        for layer in recipe_layers(name)
        for stage in layer.stages
        for knob, folder, piece in stages[stage].used
        if knob != "envs" or knob in own[stage]
    }
    return digest({src.name_of(p): src.digest_of_statements(p) for p in sorted(used)})[:16]


def of_other_code(evidence: Mapping[str, Any]) -> bool:
    """Whether a piece of the recipe has changed since its evidence was made, or other pieces are in use; also where the evidence does
    not say what ran."""
    return evidence.get("code") != code_of(evidence["recipe"])


def verdict(evidence: Mapping[str, Any]) -> str:
    """ "holds", "reversed" (the interval lies wholly on the wrong side), "void" (it has no width) or "unseen"."""
    e, p = evidence["effect"], evidence["protocol"]
    if e["high"] - e["low"] <= 1e-9 * max(abs(e["mean"]), 1e-9):
        return "void"
    if evidence["holds"]:
        return "holds"
    sign = 1 if p["direction"] == "higher" else -1
    return "reversed" if max(sign * e["low"], sign * e["high"]) < -p.get("margin", 0) else "unseen"


def knobs_of(recipe: str, changes: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], frozenset[str]]:
    """Every knob of `rl` as recipe and changes resolve it, pieces bound, and what the pieces need. Raises UserError as
    a plan does."""
    params = check_params({"recipe": recipe, "set": {"rl": {**changes}}}, path)
    stage = resolve(params)[0]["rl"]
    return bind_all(stage.pieces, stage.params, stage.settings), _needs(stage)


def _needs(stage: Resolved) -> frozenset[str]:
    """The NEEDS of a stage's pieces."""
    return frozenset(n for _, folder, name in stage.used for n in src.constant(locate(folder, name), "NEEDS", ()))


def world(task: str) -> Any:
    """The world with this name and its base policy. Raises KeyError for an unknown one."""
    from tasks.lab import arena, clip_worlds, episodes, picture_worlds, starts

    if task in picture_worlds.NAMES:
        return picture_worlds.start(task)
    if task in starts.NAMES:
        return starts.start(task)
    if task in clip_worlds.WORLDS:
        return clip_worlds.seeing(task)
    return episodes.hosted(task) if task in episodes.WORLDS else arena.arena(task)


def _sampled(metric: str) -> bool:
    """Whether the metric needs samples of the trained policy."""
    return metric in SAMPLED or metric.startswith("part.")


def prepared(
    task: str,
    recipe: str,
    changes: Mapping[str, Any],
    steps: int,
    seed: int,
    *,
    exact: bool = False,
    only: Callable[[Any], bool] | None = None,
    here: Any = None,
) -> tuple[Any, Any]:
    """The recipe put together in a world, and its player; nothing has run yet. exact: with a sampler that does not
    round. only: which training problems are drawn from (all). here: a changed world of this name."""
    from training.learner.learner import Optim
    from training.rl.ahead import Ahead
    from training.rl.compose import AS_GIVEN, compose

    here = here or world(task)
    knobs, needs = knobs_of(recipe, overlaid(overlaid(SMALL, here.small), changes), Path("params.yaml"))
    sampling, critic = knobs["sampling"], knobs["critic"]
    player = here.player(
        exact=exact,
        envs=knobs["envs"],
        own_envs=knobs["envs"] if "envs" in changes else (),
        max_turn_tokens=sampling.max_turn_tokens,
        max_tokens=sampling.max_tokens,
    )
    how = knobs["asynchrony"]()
    policy = copy.deepcopy(player.sampler.model) if how.staleness else player.sampler.model
    optim = partial(Optim, warmup=0, decay="constant", weight_decay=0.0, max_grad_norm=knobs["optimizer"].max_grad_norm)
    composed = compose(
        policy=policy,
        reference=here.reference() if "reference" in needs else None,
        teachers=here.teachers(sampling.temperature) if "teachers" in needs else None,
        body=here.copy,
        player=player,
        problems=[p for p in here.world.training if only is None or only(p)],
        needs=needs,
        seed=seed_for(seed, "behaviour", task),
        device="cpu",
        steps=steps,
        optim=optim(lr=knobs["optimizer"].lr, steps=steps),
        critic=critic.loss,
        critic_optim=optim(lr=max(critic.lr, 3e-3), steps=steps * critic.passes),
        critic_lambda=critic.lam,
        critic_passes=critic.passes,
        critic_warmup=critic.warmup,
        **{k: knobs[k] for k in AS_GIVEN},
        **({k: knobs[k] for k in ("policies", "exchange", "lora")} if knobs["policies"] else {}),
    )
    player = composed.experience.player  # it knows who plays which role
    if how.staleness:
        ahead = Ahead(composed.experience, policy, how, steps)
        composed = replace(composed, round=replace(composed.round, source=ahead))
    return composed, player


def train(
    task: str,
    recipe: str,
    changes: Mapping[str, Any],
    steps: int,
    seed: int,
    *,
    sampled: bool = True,
    here: Any = None,
) -> dict[str, float]:
    """One seed of one recipe in one world: the numbers that a protocol may name, those of SAMPLED only where asked for.
    `recipe` "base" trains nothing. here: a changed world of this name."""
    from tasks.lab import registry

    if task in registry.places():
        return registry.train(task, recipe, changes, steps, seed)
    here = here or world(task)
    if "prefer" in changes:
        return _known(
            here,
            preferred(task, recipe, changes["prefer"], 0 if recipe == "base" else steps, seed),
            task,
            seed,
            sampled,
        )
    composed, player = prepared(
        task, "" if recipe == "base" else recipe, changes, 0 if recipe == "base" else steps, seed, here=here
    )
    spent, sizes = getattr(player, "spent", None), overlaid(overlaid(SMALL, here.small), changes)
    most = steps * sizes["prompts_per_step"] * sizes["samples_per_prompt"]
    rows, gradients = _steps(composed, lambda: spent is not None and spent["samples"] >= most)
    if "policy" in composed.roles:
        player.sampler.model.load_state_dict(
            composed.roles["policy"].model.state_dict()
        )  # where it sampled from a copy
    mean = lambda name: float(np.mean([r[name] for r in rows if name in r] or [math.nan]))  # noqa: E731
    guided = mean("guide_tokens") if rows and "guide_tokens" in rows[0] else 0.0
    curves = {name: mean(name) for name in ("signal", "nonzero_advantage", "practice")} | {
        "auc": mean("reward"),
        "spread": mean("grad_norm"),
        "mute": mean("solve_none") + mean("solve_all"),
        "rollout_tokens": mean("tokens") + guided,
    }
    if recipe != "base" and src.lookup(changes, "optimizer.lr") == 0:  # the policy stands still
        curves["agreement"] = _agreement(gradients)
        if here.world.bits:
            plain, _ = prepared(task, recipe, {**changes, "corrections": []}, steps, seed, exact=True)
            curves["truth"] = _cosine(np.mean(gradients, axis=0), np.mean(_steps(plain)[1], axis=0))
        return curves
    return curves | _known(here, player, task, seed, sampled) | here.learned(composed.experience.pieces)


def _known(here: Any, player: Any, task: str, seed: int, sampled: bool) -> dict[str, float]:
    """The metrics of a trained policy: its exact answer probabilities and, if wanted, metrics from samples."""
    from tasks.lab.arena import exactly, measure
    from tasks.lab.episodes import parts

    known = exactly(here.beliefs(player.sampler.model), here.first)
    if known:
        known["rank_me"] = here.rank(player.sampler.model)
    if not sampled:
        return known
    groups = player.play(here.measured, here.tries, seed_for(seed, "behaviour", task, "measure"))
    return known | measure(groups) | parts(groups)


def preferred(task: str, recipe: str, changes: Mapping[str, Any], steps: int, seed: int) -> Any:
    """The player of a policy that learned in a world of arena.py or on a task of starts.py from pairs which it sampled
    itself, the best against the worst rollout of a prompt (or, for the share of them that the task says, the worst
    against the best), with the loss and the ratio of a recipe of the stage `prefer`."""
    from training.learner.learner import Learner, Optim
    from training.learner.loop import Round, run
    from training.preference.objective import PairObjective
    from training.learner.pack import Row
    from training.preference.on_policy_pairs import SampledPairs
    from training.types import Group

    @dataclass(kw_only=True)
    class Turned(SampledPairs):
        """flips: the share of units whose rows are the wrong way round, which and which not by the seed alone."""

        flips: float

        def unit(self, group: Group, index: int, worths: Sequence[Any] = ()) -> list[Row]:
            rows = super().unit(group, index, worths)
            rng = np.random.default_rng(seed_for(self.seed, "flips", self.player.sampler.version, index))
            return rows if rng.random() >= self.flips else [rows[i ^ 1] for i in range(len(rows))]

    here = world(task)
    sampling = overlaid(SMALL, here.small)["sampling"]
    small = {
        "optimizer": {"lr": SMALL["optimizer"]["lr"]},
        "sampling": {"max_turn_tokens": sampling["max_turn_tokens"]},
        "max_length": sampling["max_tokens"],
        "pairs_per_step": 8,
    }
    params = check_params(
        {"recipe": "" if recipe == "base" else recipe, "set": {"prefer": overlaid(small, changes)}}, Path("params.yaml")
    )
    stage = resolve(params)[0]["prefer"]
    knobs = bind_all(stage.pieces, stage.params, stage.settings)
    player = here.player(max_turn_tokens=knobs["sampling"].max_turn_tokens, max_tokens=knobs["max_length"])
    policy = player.sampler.model
    source = Turned(
        problems=here.world.training,
        player=player,
        prompts=knobs["pairs_per_step"],
        samples=knobs["samples_per_prompt"],
        seed=seed_for(seed, "behaviour", task),
        flips=getattr(here, "flips", 0.0),
    )
    objective = PairObjective(
        loss=knobs["loss"],
        reference=here.reference(),
        policy=policy,
        ratio=knobs["ratio"],
        sft=knobs["sft_weight"],
        needs=_needs(stage),
    )
    optim = Optim(
        lr=knobs["optimizer"].lr,
        warmup=0,
        steps=steps,
        decay="constant",
        weight_decay=0.0,
        max_grad_norm=knobs["optimizer"].max_grad_norm,
    )
    learned = Round(
        name="prefer",
        role="policy",
        source=source,
        objective=objective,
        prepare=objective.prepare,
        steps=steps,
        rows_per_unit=2,
    )
    for _ in run([learned], {"policy": Learner(policy, optim)}):
        pass
    return player


def _steps(composed: Any, spent: Callable[[], bool] = bool) -> tuple[list[dict[str, float]], list[np.ndarray]]:
    """Run all steps, or those until `spent`: the metrics of each, and the gradient of each that had one, as it was before
    its norm was clipped."""
    from training.learner.loop import run

    seen: list[dict[str, float]] = []
    gradients = []
    one = next(iter(composed.roles.values()))
    learner = getattr(one, "learner", one)  # of several policies, the first

    def source(step: int) -> tuple[Any, Mapping[str, float]]:
        batches, metrics = composed.round.source(step)
        batches = list(batches)
        rollouts = [r for g in composed.experience.groups for r in g.rollouts]
        rows = [b.group[b.row_sum((b.columns["advantages"].abs() * b.trainable).float()) > 0] for b in batches]
        trained = sum(b.totals["sequences"] for b in batches)
        seen.append(
            {
                "signal": len({int(g) for one in rows for g in one}) / max(metrics["groups"], 1.0),
                "nonzero_advantage": sum(map(len, rows)) / max(trained, 1.0),
                "practice": sum(r.problem.family == "hard" for r in rollouts) / max(len(rollouts), 1),
            }
        )
        return batches, metrics

    rows = []
    with composed.round.source if isinstance(composed.round.source, AbstractContextManager) else nullcontext():
        for _, _, metrics in run([replace(composed.round, source=source)], composed.roles):
            rows.append({**metrics, **seen[-1]})
            if spent():
                break
            if "grad_norm" in metrics and metrics["lr"] == 0:
                flat = np.concatenate([w.grad.numpy().ravel() for w in learner.weights if w.grad is not None])
                gradients.append(flat * (metrics["grad_norm"] / max(float(np.linalg.norm(flat)), 1e-12)))
    return rows, gradients


def _agreement(gradients: Sequence[np.ndarray]) -> float:
    """Mean cosine between two of these: 1 where chance plays no part, near 0 where noise is all there is."""
    pairs = [_cosine(a, b) for i, a in enumerate(gradients) for b in gradients[:i]]
    return float(np.mean(pairs)) if pairs else math.nan


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-30))


@lru_cache(maxsize=4096)
def _trained(task: str, recipe: str, changes: str, steps: int, seed: int, sampled: bool) -> dict[str, float]:
    """`train`, once per process for the same arguments: many protocols compare with the same runs of the same
    recipe."""
    return train(task, recipe, json.loads(changes), steps, seed, sampled=sampled)


def merged(both: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of one side: its own before those of both, within a stage too where they are by stage."""
    mine = {k: overlaid(both[k], v) if k in STAGES and k in both else v for k, v in changes.items()}
    return overlaid(both, mine)


def behave(name: str, where: str = "behaviour", *, progress: Any = lambda text: None) -> dict[str, Any]:
    """Run the protocol of a recipe under a key of WHERE; returns its evidence."""
    protocol = protocol_of(name, where)
    began = time.monotonic()
    values: list[tuple[float, float]] = []
    for seed in range(1, protocol["seeds"] + 1):
        pair = []
        for recipe, changes in ((name, protocol["set"]), (protocol["against"], protocol["against_set"])):
            knobs, sampled = json.dumps(merged(protocol["both"], changes), sort_keys=True), _sampled(protocol["metric"])
            outcome = _trained(protocol["task"], recipe, knobs, protocol["steps"], seed, sampled)
            if protocol["metric"] not in outcome:
                has = nearest(protocol["metric"], outcome)
                raise UserError(
                    f"recipe {name}: the world {protocol['task']} does not measure {protocol['metric']}: {has}"
                )
            pair.append(outcome[protocol["metric"]])
        values.append((pair[0], pair[1]))
        progress(
            f"{name} in {protocol['task']}: seed {seed} of {protocol['seeds']}: {pair[0]:.4g} against {pair[1]:.4g}"
        )
    effect = summary([a - b for a, b in values])
    if len(values) > 1 and effect["high"] == effect["low"]:
        raise UserError(
            f"recipe {name}: all {len(values)} seeds give the same difference {effect['mean']:.6g}: they are one draw, and an interval of "
            "no width says nothing; choose a metric or a world in which seeds differ"
        )
    sign = 1 if protocol["direction"] == "higher" else -1
    return {
        "recipe": name,
        "protocol": protocol,
        "protocol_digest": digest(protocol)[:16],
        "code": code_of(name),
        "constants": constants_of(name),
        "changed": changed(name, protocol),
        "values": [{"seed": i + 1, "this": a, "against": b} for i, (a, b) in enumerate(values)],
        "effect": effect,
        "holds": bool(min(sign * effect["low"], sign * effect["high"]) > -protocol.get("margin", 0)),
        "seconds": round(time.monotonic() - began, 1),
    }


def summary(differences: list[float]) -> dict[str, float]:
    """Mean of paired differences with the 95 % interval of Student's t."""
    d = np.array(differences)
    half = float(half_width(d)) if len(d) > 1 else math.inf
    return {"mean": float(d.mean()), "low": float(d.mean()) - half, "high": float(d.mean()) + half, "n": len(d)}


def evidence_path(name: str, where: str = "behaviour") -> Path:
    from tasks.planning.resolve import yaml_files

    place = yaml_files("recipes")[name].parent
    kept = (place.parent if place.name in ("core", "library") else place) / "evidence"
    return (kept if where == "behaviour" else kept / where) / f"{name}.json"


def evidence_of(name: str, where: str = "behaviour") -> dict[str, Any] | None:
    """The evidence that is recorded of a recipe, None where there is none."""
    path = evidence_path(name, where)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write(evidence: Mapping[str, Any], where: str = "behaviour") -> Path:
    """Writes evidence to its file. The results of an earlier protocol stay in it under `earlier`, so that a protocol
    changed after a first look is visible. Raises UserError for evidence without the digest of the code that ran."""
    if not evidence.get("code"):
        raise UserError(
            f"evidence of {evidence['recipe']} has no digest of the code that ran (key `code`): run `espalier check {evidence['recipe']} --behaviour --record`"
        )
    path = evidence_path(evidence["recipe"], where)
    path.parent.mkdir(parents=True, exist_ok=True)
    if before := evidence_of(evidence["recipe"], where):
        if before["protocol_digest"] != evidence["protocol_digest"]:
            kept = {k: before[k] for k in ("protocol", "protocol_digest", "effect", "holds", "seconds")}
            evidence = {**evidence, "earlier": [*before.get("earlier", []), kept]}
        elif "earlier" in before:
            evidence = {**evidence, "earlier": before["earlier"]}
    path.write_text(json.dumps(evidence, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path
