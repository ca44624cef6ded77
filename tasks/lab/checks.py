"""Numeric checks of a recipe: data beside the recipe, run by one function, for the tests and for `espalier check`.

    checks:
      - name: one success among eight
        piece: advantage/quantile        the piece, with the knobs that this recipe gives it
        knobs: {}                                 optional: replaces some of them (numbers scaled down)
        given: {rewards: [[1, 0, 0, 0]]}          inputs, by folder as below
        expect: {advantages: [[1.732, 0, 0, 0]]}      what to compare: an integer must match exactly, a float within atol
        atol: 0.001                               1e-6 unless said

What a check of each kind may give and expect is declared with the kind (`Check gives` and `Check expects` of the
Protocol in its package; docs/recipes.md shows all of them). `rows` are those of tasks/lab/toy.py: log-probs, or whole
distributions with the sampled tokens; the gradient is then that of the logits. A loss is divided by its declared
denominator, as the learner does.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.errors import UserError, nearest
from tasks.lab import problem_checks
from tasks.planning.former import piece_now
from tasks.planning.kinds import declared, settled, slots
from tasks.planning.pieces import bind
from tasks.planning.resolve import read_recipe, recipe_layers

KEYS = {"name", "piece", "knobs", "given", "expect", "atol"}


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one check. `differences` says each place where it failed; empty means passed."""

    recipe: str
    name: str
    piece: str
    differences: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.differences


def load(name: str) -> dict[str, Any]:
    """A recipe merged over the stages of the recipe that it extends; checks are not inherited. Raises UserError for a
    malformed recipe."""
    recipe = read_recipe(name)
    stages: dict[str, dict[str, Any]] = {}
    pieces = slots()
    for layer in recipe_layers(name):
        for stage, values in layer.stages.items():
            knobs = stages.setdefault(stage, {})
            for knob, value in (values or {}).items():
                knobs[knob] = _laid(pieces.get(stage, {}), knob, value, knobs.get(knob))
    return {**recipe, "stages": stages}


def _laid(kinds: Mapping[str, str], name: str, value: Any, below: Any) -> Any:
    """A knob's value over that of what a recipe extends: a piece is a mapping, and one without the key `piece` changes
    what there is."""
    if name in kinds and isinstance(value, str):
        return {"piece": value}
    if not isinstance(value, Mapping) or "piece" in value:
        return value
    start = below if isinstance(below, Mapping) else {}
    inner = {k: _laid(kinds, f"{name}.{k}", v, start.get(k)) if f"{name}.{k}" in kinds else v for k, v in value.items()}
    return {**start, **inner}


def run_checks(recipe: Mapping[str, Any]) -> list[Result]:
    """Run every check of a recipe as `load` returns it. Raises UserError for a malformed check."""
    return [_run(recipe, check) for check in recipe.get("checks") or ()]


def _run(recipe: Mapping[str, Any], check: Mapping[str, Any]) -> Result:
    where = f"check {check.get('name', '(unnamed)')!r} of recipe {recipe['id']}"
    unknown = sorted(set(check) - KEYS)
    if unknown:
        raise UserError(f"{where} has the unknown key {unknown[0]!r}: {nearest(unknown[0], KEYS)}")
    kind, _, name = check["piece"].partition("/")
    if kind not in RUNNERS or not name:
        now = piece_now(check["piece"])
        former = now.partition("/")[0] in RUNNERS
        write = (
            f"it is {now} now: write {now}" if former else f"write kind/name, with a kind among {', '.join(RUNNERS)}"
        )
        raise UserError(f"{where} names the piece {check['piece']!r}: {write}")
    spec = _chosen(recipe, kind, name) | {"piece": name} | dict(check.get("knobs", {}))
    piece = bind(kind, spec)
    given = _names(declared(kind).gives, kind, piece)
    if unknown := sorted(set(check["given"]) - given):
        raise UserError(
            f"{where} gives {unknown[0]!r}, which a check of {kind} does not take: {nearest(unknown[0], given)}"
        )
    result = RUNNERS[kind](piece, check["given"], recipe)
    expected = _names(declared(kind).expects, kind, piece, result)
    if unknown := sorted(set(check["expect"]) - expected):
        raise UserError(
            f"{where} expects {unknown[0]!r}, which a {kind} piece does not give: {nearest(unknown[0], expected)}"
        )
    if unknown := sorted(set(result) - expected):
        raise ValueError(f"a check of {kind} gives {unknown[0]!r}, which {declared(kind).package} does not declare")
    atol = float(check.get("atol", 1e-6))
    differences = []
    for key, want in check["expect"].items():
        differences += (
            _compare(key, want, result[key], atol) if key in result else [f"there is no {key} ({_compact(result)})"]
        )
    return Result(recipe=recipe["id"], name=check["name"], piece=check["piece"], differences=tuple(differences))


def _names(declared: Mapping[str, str], kind: str, piece: Any, result: Mapping[str, Any] | None = None) -> set[str]:
    """The names that a declaration allows. `**rollouts` stands for the arguments of toy.groups, `**columns` for the
    columns that the piece reads, `**metrics` for what it gave."""
    out = {name for name in declared if not name.startswith("*")}
    if "**rollouts" in declared:
        from tasks.lab import toy

        out |= set(inspect.signature(toy.groups).parameters)
    if "**columns" in declared:
        if kind == "metric":
            from training.metrics import columns

            out |= set(columns(piece.func))
        else:
            from training.preference.objective import columns_of

            out |= set(columns_of(piece))
    return out | set(result or ()) if "**metrics" in declared else out


def _compact(values: Mapping[str, Any]) -> str:
    return "; ".join(f"{k}: {v!r}" for k, v in values.items())


def _chosen(recipe: Mapping[str, Any], kind: str, name: str | None = None) -> dict[str, Any]:
    """The spec that a recipe gives a piece of one folder, or {} where it leaves it out. Without a name: the first of
    that folder."""
    pieces = slots()
    for stage, knobs in recipe.get("stages", {}).items():
        for knob, value in settled(stage, knobs):
            if pieces.get(stage, {}).get(knob) == kind:
                for spec in value if isinstance(value, list) else [value] if value else []:
                    spec = {"piece": spec} if isinstance(spec, str) else spec
                    if name is None or spec["piece"].replace("-", "_") == name.replace("-", "_"):
                        return dict(spec)
    return {}


def _compare(place: str, want: Any, value: Any, atol: float) -> list[str]:
    if isinstance(want, Mapping):
        return [
            d
            for k, v in want.items()
            for d in (_compare(f"{place}.{k}", v, value[k], atol) if k in value else [f"{place} has no {k}"])
        ]
    if isinstance(want, list):
        value = list(value)
        if len(want) != len(value):
            return [f"{place} has {len(value)} entries, expected {len(want)}"]
        return [
            d for i, (w, g) in enumerate(zip(want, value, strict=True)) for d in _compare(f"{place}[{i}]", w, g, atol)
        ]
    if isinstance(want, float) and isinstance(value, (int, float)):
        same = math.isnan(value) if math.isnan(want) else abs(want - value) <= atol
        return [] if same else [f"{place} is {float(value):.8g}, expected {want:.8g} within {atol:g}"]
    return [] if want == value else [f"{place} is {value!r}, expected exactly {want!r}"]


# --- one runner per kind: (bound piece, given, recipe) -> what may be expected -----------------------------------------


def _groups(given: Mapping[str, Any]) -> tuple:
    import numpy as np

    from tasks.lab import toy

    rewards = [np.array(r, dtype=np.float64) for r in given["rewards"]]
    rollouts = {k: v for k, v in given.items() if k not in ("rewards", "state", "plays", "worth")}
    return toy.groups(given["rewards"], **rollouts), rewards, dict(given.get("state", {}))


def _advantage(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    groups, rewards, state = _groups(given)
    advantages = piece(groups, rewards, state, np.random.default_rng(0))
    return {
        "advantages": [[x.tolist() if isinstance(x, np.ndarray) else float(x) for x in c] for c in advantages],
        "state": state,
    }


def _filter(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    groups, rewards, state = _groups(given)
    return {"verdicts": piece(groups, rewards, state, np.random.default_rng(0)), "state": state}


def _reward(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    groups, rewards, state = _groups(given)
    return {
        "rewards": [[float(x) for x in r] for r in piece(groups, rewards, state, np.random.default_rng(0))],
        "state": state,
    }


def _by_row(toy: Any, values: Any) -> list[list[float]]:
    """[T] -> per row its listed tokens (the toy's prompt token left out)."""
    return [x[1:].tolist() for x in values.detach().split(toy.batch.lengths)]


def _ratio(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from tasks.lab import toy

    t = toy.batch(given["rows"])
    return {"log_ratio": _by_row(t, piece(t.stats.logp, t.batch.columns["old"], t.batch))}


def _correct(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from tasks.lab import toy

    t = toy.batch(given["rows"])
    return {"weight": _by_row(t, piece(t.batch.columns["old"], t.batch.columns["sampling_logp"], t.batch))}


def _loss(t: Any, terms: Any) -> dict[str, Any]:
    import numpy as np

    loss = terms.values.sum() / t.batch.totals[terms.denominator]
    gradient = t.gradient(loss)
    return {"loss": loss.item(), "gradient": gradient, "descent": [(-np.array(g)).tolist() for g in gradient]}


def _policy_loss(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from tasks.lab import toy

    t = toy.batch(given["rows"])
    ratio = bind("ratio", _chosen(recipe, "ratio") or {"piece": "token"})
    if piece.prepare:
        piece.prepare(t.batch)
    return _loss(
        t, piece(ratio(t.stats.logp, t.batch.columns["old"], t.batch), t.batch.columns["advantages"], t.stats, t.batch)
    )


def _regulariser(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from tasks.lab import toy

    t = toy.batch(given["rows"])
    if piece.prepare:
        piece.prepare(t.batch)
    return _loss(t, piece(t.stats, t.batch))


def _preference_loss(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    from training.preference.objective import columns_of

    sides = {k: torch.tensor(given[k], dtype=torch.float64).requires_grad_() for k in ("chosen", "rejected")}
    n = len(given["chosen"])
    absent = {"ref_chosen": [0.0] * n, "ref_rejected": [0.0] * n, "n_chosen": [1.0] * n, "n_rejected": [1.0] * n}
    rest = [torch.tensor(given.get(k, default), dtype=torch.float64) for k, default in absent.items()]
    values = piece(
        *sides.values(), *rest, **{k: torch.tensor(given[k], dtype=torch.float64) for k in columns_of(piece)}
    )
    gradient = torch.autograd.grad(values.sum(), list(sides.values()), allow_unused=True)
    none = [0.0] * n
    return {
        "values": values.tolist(),
        "gradient": {k: none if g is None else g.tolist() for k, g in zip(sides, gradient, strict=True)},
    }


def _reward_head(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    from tasks.lab import toy
    from training.types import TokenStats

    names = ("outputs", "gate", "beta")
    extras = {k: torch.tensor(given[k], dtype=torch.float64) for k in names if k in given}
    rows = len(given["outputs"])
    batch = toy.batch([{"logp": [0.0]}] * rows).batch
    batch.group = torch.arange(rows) // 2
    head, stats = piece(), TokenStats(logp=torch.zeros(len(batch.ids)), extras=extras)
    return {"rewards": head.reward(stats, batch).tolist(), "ranked": head.ranked(stats, batch).tolist()}


def _group_transform(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from tasks.lab import toy

    groups, _, state = _groups(given)
    table = toy.RolloutServices(plays=list(given.get("plays", [])), worth=given.get("worth", 1.0))
    table.problems = [g.rollouts[0].problem for g in groups]
    out = piece(groups, table, state, np.random.default_rng(0))
    return {
        "rewards": [[float(x) for x in g.rewards] for g in out],
        "off_policy": [[r.off_policy for r in g.rollouts] for g in out],
        "steps": [[[s.reward for s in r.segments if s.role == "model"] for r in g.rollouts] for g in out],
        "asked": table.asked,
    }


def _value_loss(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from tasks.lab import toy

    t = toy.batch([{**row, "logp": row["value"], "value": row.get("before", row["value"])} for row in given["rows"]])
    return _loss(t, piece(t.leaf, t.batch))


def _asynchrony(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training.rl.ahead import simulate

    line = simulate(given["sampling"], given["learning"], piece().staleness)
    return {"seconds": line.seconds, "hidden": line.hidden, "saved": 1 - line.seconds / (line.sampling + line.learning)}


def _placement(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from tasks.lab.placement._graph import calls_of, cost
    from tasks.lab.placement.symmetric import symmetric

    calls, devices, move, rng = (
        calls_of(given["calls"]),
        given["devices"],
        given.get("move", 0.0),
        np.random.default_rng(0),
    )
    plan = piece(calls, devices, move, rng)
    seconds = cost(calls, plan, devices, move)
    return {
        "seconds": seconds,
        "plan": {k: list(v) for k, v in plan.items()},
        "saved": 1 - seconds / cost(calls, symmetric(calls, devices, move, rng), devices, move),
    }


def _control(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    def like(value: Any, there: Any) -> Any:
        """A value of YAML in the form of what it replaces."""
        if isinstance(there, set):
            return {like(v, ()) if isinstance(v, list) else v for v in value}
        if isinstance(there, (list, tuple)):
            inner = there[0] if there else None
            return type(there)(like(v, inner if inner is not None else ()) if isinstance(v, list) else v for v in value)
        return value

    world = piece()
    state, seen = world.start(0)
    for name, value in given.get("state", {}).items():
        setattr(state, name, like(value, getattr(state, name)))
    rewards, parts, done = [], {}, False
    for action in given["actions"]:
        step = world.step(state, action)
        seen, parts, done = step.observation, step.parts, step.done
        rewards.append(step.reward)
    world.close(state)
    return {"rewards": rewards, "seen": seen.tolist(), "parts": dict(parts), "done": done}


def _turn_budget(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {"values": [piece(step, given["steps"]) for step in given["at"]]}


def _metric(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training.metrics import columns

    return piece(given["scored"], *(given[c] for c in columns(piece.func)))


def _curriculum(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from collections import Counter
    from dataclasses import replace

    import numpy as np

    from tasks.lab import toy

    families = given["families"]
    hard = given.get("difficulty", [{}] * len(families))
    problems = [
        replace(p, family=f, difficulty=d) for p, f, d in zip(toy.problems(len(families)), families, hard, strict=True)
    ]
    scores = {p.id: list(s) for p, s in zip(problems, given.get("scores", [[]] * len(families)), strict=True) if s}
    state = {**given.get("state", {}), "scores": scores}
    rng = np.random.default_rng(0)
    drawn = Counter(
        problems[i].family for _ in range(given.get("draws", 1)) for i in piece(problems, state, rng, given["n"])
    )
    return {"shares": {k: drawn[k] / drawn.total() for k in sorted(set(families))}, "state": state}


def _cleaner(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from synth.types import Decision, Message, PreferencePair

    def pair(i: int, values: Mapping[str, Any]) -> PreferencePair:
        row: dict[str, Any] = {"prompt": f"question {i}", "chosen": "a good answer", "rejected": "a bad answer"} | dict(
            values
        )
        row["decisions"] = tuple(Decision(**d) for d in row.get("decisions", ()))
        prompt = (Message(role="user", content=row.pop("prompt")),)
        about: dict[str, Any] = {"source": "check", "split": "train"}
        return PreferencePair(id=f"{i:06d}", prompt=prompt, **about | row)

    decisions = piece([pair(i, values) for i, values in enumerate(given["pairs"])])
    return {
        "actions": [d.action for d in decisions],
        "reasons": [d.reason.partition(":")[0] for d in decisions],
        "scores": [d.score for d in decisions],
    }


def _decode(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from tasks.lab import decode_checks

    return decode_checks.decode(piece, given, recipe)


def _merge(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    def weights(one: Mapping[str, Any]) -> dict[str, Any]:
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in one.items()}

    activations = weights(given.get("activations", {}))
    rng = torch.Generator().manual_seed(0)
    merged = piece(weights(given["base"]), [weights(m) for m in given["models"]], activations, rng)
    return {"merged": {name: value.tolist() for name, value in merged.items()}}


def _generation(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    numbers = {k: torch.tensor(v, dtype=torch.float64).requires_grad_() for k, v in given.items()}
    logp = piece().logp(**numbers)
    gradients = torch.autograd.grad(logp.sum(), list(numbers.values()), allow_unused=True)
    gradient = {k: g.tolist() for k, g in zip(numbers, gradients, strict=True) if g is not None}
    return {"logp": logp.tolist(), "gradient": gradient}


def _gradient(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from tasks.lab import gradient_checks

    return gradient_checks.gradient(piece, given, recipe)


RUNNERS = {
    "generation": _generation,
    "gradient": _gradient,
    "decode": _decode,
    "merge": _merge,
    "curriculum": _curriculum,
    "advantage": _advantage,
    "filter": _filter,
    "reward": _reward,
    "ratio": _ratio,
    "correction": _correct,
    "policy_loss": _policy_loss,
    "regulariser": _regulariser,
    "preference_loss": _preference_loss,
    "reward_head": _reward_head,
    "value_loss": _value_loss,
    "group_transform": _group_transform,
    "control": _control,
    "turn_budget": _turn_budget,
    "asynchrony": _asynchrony,
    "placement": _placement,
    "metric": _metric,
    "cleaner": _cleaner,
    **problem_checks.RUNNERS,
}
