"""Numeric checks of a recipe: data beside the recipe, run by one function, for the tests and for `espalier check`.

    checks:
      - name: one success among eight
        piece: training.advantage/quantile        the piece, with the knobs that this recipe gives it
        knobs: {}                                 optional: replaces some of them (numbers scaled down)
        given: {rewards: [[1, 0, 0, 0]]}          inputs, by folder as below
        expect: {credit: [[1.732, 0, 0, 0]]}      what to compare: an integer must match exactly, a float within atol
        atol: 0.001                               1e-6 unless said

    folder        given                                      may expect
    advantage     rewards, state, and of rollouts (below)    credit, state
    filter        as for advantage                           verdicts (null = kept), state
    reward        as for advantage                           rewards, state
    curriculum    families, scores, state, n, draws          shares: {family: share of what was drawn}, state
    ratio         rows                                       log_ratio
    guide         as for advantage, plays (lists of rewards  rewards, external, asked (every text that was asked or said)
                  that further plays give), worth (1)
    correct       rows                                       weight
    surrogate     rows (the recipe's ratio applies)          loss, gradient, descent (= -gradient)
    regulariser   rows                                       loss, gradient, descent
    value_loss    rows (value is what the critic says now;   loss, gradient, descent
                  before: what it said before the step)
    schedule      steps, at (a list of steps)                values
    overlap       sampling, learning (seconds of each step)  seconds, hidden, saved (share of the plain loop's seconds)
    placement     calls, devices, move (0)                   seconds, plan, saved (share of the seconds of the symmetric plan)
    prefer        chosen, rejected, ref_chosen, ..., and     values, gradient: {chosen, rejected}
                  the columns that the loss reads
    head          outputs [rows][k], gate, beta              rewards, ranked
    evaluate      scored, and the columns that it reads      the metrics
    synth.clean   pairs (columns of each, and what a         actions, reasons (codes), scores
                  pair may have: prompt, chosen, ...)
    synth.verify, synth.make.families, synth.make.pairs, synth.propose, training.env: see tasks/planning/problem_checks.py

Of rollouts: lengths, entropies, parts, turns and what else training/toy.py `groups` takes. `rows` are those of training/toy.py: log-probs, or whole distributions with the sampled tokens; the gradient is then that of the
logits. A loss is divided by its declared denominator, as the learner does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks.errors import UserError, nearest
from tasks.planning import problem_checks
from tasks.planning.pieces import bind
from tasks.planning.resolve import read_recipe, recipe_layers

SLOTS = {
    "advantage": "advantage",
    "ratio": "ratio",
    "corrections": "correct",
    "surrogate": "surrogate",
    "regularisers": "regulariser",
    "filters": "filter",
    "rewards": "reward",
    "curriculum": "curriculum",
    "guides": "guide",
    "critic": "value_loss",
    "turn_budget": "schedule",
    "overlap": "overlap",
    "loss": "prefer",
    "head": "head",
    "cleaners": "clean",
    "makers": "pairs",
    "pay": "reward",
    "proposer": "propose",
    "envs": "env",
}
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
    """A recipe with the stages of what it extends merged below its own; its checks are its own alone. Raises UserError."""
    recipe = read_recipe(name)
    stages: dict[str, dict[str, Any]] = {}
    for layer in recipe_layers(name):
        for stage, values in layer.stages.items():
            knobs = stages.setdefault(stage, {})
            for knob, value in (values or {}).items():
                if knob in SLOTS and isinstance(value, str):
                    value = {"piece": value}
                elif isinstance(value, Mapping) and "piece" not in value and isinstance(knobs.get(knob), Mapping):
                    value = {**knobs[knob], **value}
                knobs[knob] = value
    return {**recipe, "stages": stages}


def run_checks(recipe: Mapping[str, Any]) -> list[Result]:
    """Run every check of a recipe as `load` returns it. Raises UserError for a malformed check."""
    return [_run(recipe, check) for check in recipe.get("checks") or ()]


def _run(recipe: Mapping[str, Any], check: Mapping[str, Any]) -> Result:
    where = f"check {check.get('name', '(unnamed)')!r} of recipe {recipe['id']}"
    unknown = sorted(set(check) - KEYS)
    if unknown:
        raise UserError(f"{where} has the unknown key {unknown[0]!r}: {nearest(unknown[0], KEYS)}")
    folder, _, name = check["piece"].partition("/")
    kind = folder.rpartition(".")[2]
    if kind not in RUNNERS or folder != folder_of(kind) or not name:
        folders = ", ".join(map(folder_of, RUNNERS))
        raise UserError(f"{where} names the piece {check['piece']!r}: write folder/name, with a folder among {folders}")
    spec = _chosen(recipe, kind, name) | {"piece": name} | dict(check.get("knobs", {}))
    got = RUNNERS[kind](bind(folder, spec), check["given"], recipe)
    unknown = sorted(set(check["expect"]) - set(got))
    if unknown:
        raise UserError(f"{where} expects {unknown[0]!r}, which a {kind} piece does not give: {nearest(unknown[0], got)}")
    differences = [d for key, want in check["expect"].items() for d in _compare(key, want, got[key], float(check.get("atol", 1e-6)))]
    return Result(recipe=recipe["id"], name=check["name"], piece=check["piece"], differences=tuple(differences))


def folder_of(kind: str) -> str:
    """The folder of pieces of one kind: "training.advantage", "synth.clean"."""
    return {"clean": "synth.clean", **problem_checks.FOLDERS}.get(kind, f"training.{kind}")


def _chosen(recipe: Mapping[str, Any], kind: str, name: str | None = None) -> dict[str, Any]:
    """The spec that a recipe gives a piece of one folder, or {} where it leaves it out. Without a name: the first of that folder."""
    for stage in recipe.get("stages", {}).values():
        for slot, value in stage.items():
            if SLOTS.get(slot) == kind:
                for spec in value if isinstance(value, list) else [value] if value else []:
                    if name is None or spec["piece"].replace("-", "_") == name.replace("-", "_"):
                        return dict(spec)
    return {}


def _compare(place: str, want: Any, got: Any, atol: float) -> list[str]:
    if isinstance(want, Mapping):
        return [d for k, v in want.items() for d in (_compare(f"{place}.{k}", v, got[k], atol) if k in got else [f"{place} has no {k}"])]
    if isinstance(want, list):
        got = list(got)
        if len(want) != len(got):
            return [f"{place} has {len(got)} entries, expected {len(want)}"]
        return [d for i, (w, g) in enumerate(zip(want, got, strict=True)) for d in _compare(f"{place}[{i}]", w, g, atol)]
    if isinstance(want, float) and isinstance(got, (int, float)):
        same = math.isnan(got) if math.isnan(want) else abs(want - got) <= atol
        return [] if same else [f"{place} is {float(got):.8g}, expected {want:.8g} within {atol:g}"]
    return [] if want == got else [f"{place} is {got!r}, expected exactly {want!r}"]


# --- one runner per folder: (bound piece, given, recipe) -> what may be expected ---------------------------------------


def _groups(given: Mapping[str, Any]) -> tuple:
    import numpy as np

    from training import toy

    rewards = [np.array(r, dtype=np.float64) for r in given["rewards"]]
    rollouts = {k: v for k, v in given.items() if k not in ("rewards", "state", "plays", "worth")}
    return toy.groups(given["rewards"], **rollouts), rewards, dict(given.get("state", {}))


def _advantage(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    groups, rewards, state = _groups(given)
    credit = piece(groups, rewards, state, np.random.default_rng(0))
    return {"credit": [[x.tolist() if isinstance(x, np.ndarray) else float(x) for x in c] for c in credit], "state": state}


def _filter(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    groups, rewards, state = _groups(given)
    return {"verdicts": piece(groups, rewards, state, np.random.default_rng(0)), "state": state}


def _reward(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    groups, rewards, state = _groups(given)
    return {"rewards": [[float(x) for x in r] for r in piece(groups, rewards, state, np.random.default_rng(0))], "state": state}


def _by_row(toy: Any, values: Any) -> list[list[float]]:
    """[T] -> per row its listed tokens (the toy's prompt token left out)."""
    return [x[1:].tolist() for x in values.detach().split(toy.batch.lengths)]


def _ratio(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training import toy

    t = toy.batch(given["rows"])
    return {"log_ratio": _by_row(t, piece(t.stats.logp, t.batch.columns["old"], t.batch))}


def _correct(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training import toy

    t = toy.batch(given["rows"])
    return {"weight": _by_row(t, piece(t.batch.columns["old"], t.batch.columns["behaviour"], t.batch))}


def _loss(t: Any, terms: Any) -> dict[str, Any]:
    import numpy as np

    loss = terms.values.sum() / t.batch.totals[terms.denominator]
    gradient = t.gradient(loss)
    return {"loss": loss.item(), "gradient": gradient, "descent": [(-np.array(g)).tolist() for g in gradient]}


def _surrogate(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training import toy

    t = toy.batch(given["rows"])
    ratio = bind("training.ratio", _chosen(recipe, "ratio") or {"piece": "token"})
    if piece.prepare:
        piece.prepare(t.batch)
    return _loss(t, piece(ratio(t.stats.logp, t.batch.columns["old"], t.batch), t.batch.columns["credit"], t.stats, t.batch))


def _regulariser(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training import toy

    t = toy.batch(given["rows"])
    if piece.prepare:
        piece.prepare(t.batch)
    return _loss(t, piece(t.stats, t.batch))


def _prefer(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    from training.pairs import columns_of

    sides = {k: torch.tensor(given[k], dtype=torch.float64).requires_grad_() for k in ("chosen", "rejected")}
    n = len(given["chosen"])
    absent = {"ref_chosen": [0.0] * n, "ref_rejected": [0.0] * n, "n_chosen": [1.0] * n, "n_rejected": [1.0] * n}
    rest = [torch.tensor(given.get(k, default), dtype=torch.float64) for k, default in absent.items()]
    values = piece(*sides.values(), *rest, **{k: torch.tensor(given[k], dtype=torch.float64) for k in columns_of(piece)})
    gradient = torch.autograd.grad(values.sum(), list(sides.values()), allow_unused=True)
    none = [0.0] * n
    return {"values": values.tolist(), "gradient": {k: none if g is None else g.tolist() for k, g in zip(sides, gradient, strict=True)}}


def _head(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    from training import toy
    from training.types import TokenStats

    names = ("outputs", "gate", "beta")
    extras = {k: torch.tensor(given[k], dtype=torch.float64) for k in names if k in given}
    rows = len(given["outputs"])
    batch = toy.batch([{"logp": [0.0]}] * rows).batch
    batch.group = torch.arange(rows) // 2
    head, stats = piece(), TokenStats(logp=torch.zeros(len(batch.ids)), extras=extras)
    return {"rewards": head.reward(stats, batch).tolist(), "ranked": head.ranked(stats, batch).tolist()}


def _guide(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from training import toy

    groups, _, state = _groups(given)
    table = toy.Table(plays=list(given.get("plays", [])), worth=given.get("worth", 1.0))
    out = piece(groups, table, state, np.random.default_rng(0))
    return {
        "rewards": [[float(x) for x in g.rewards] for g in out],
        "external": [[r.external for r in g.rollouts] for g in out],
        "asked": table.asked,
    }


def _value_loss(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training import toy

    t = toy.batch([{**row, "logp": row["value"], "value": row.get("before", row["value"])} for row in given["rows"]])
    return _loss(t, piece(t.leaf, t.batch))


def _overlap(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training.rollout.asynchronous import simulate

    line = simulate(given["sampling"], given["learning"], piece().staleness)
    return {"seconds": line.seconds, "hidden": line.hidden, "saved": 1 - line.seconds / (line.sampling + line.learning)}


def _placement(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    from training.placement._graph import calls_of, cost
    from training.placement.symmetric import symmetric

    calls, devices, move, rng = calls_of(given["calls"]), given["devices"], given.get("move", 0.0), np.random.default_rng(0)
    plan = piece(calls, devices, move, rng)
    seconds = cost(calls, plan, devices, move)
    return {"seconds": seconds, "plan": {k: list(v) for k, v in plan.items()}, "saved": 1 - seconds / cost(calls, symmetric(calls, devices, move, rng), devices, move)}


def _schedule(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {"values": [piece(step, given["steps"]) for step in given["at"]]}


def _evaluate(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from training.evaluate import columns

    return piece(given["scored"], *(given[c] for c in columns(piece.func)))


def _curriculum(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from collections import Counter
    from dataclasses import replace

    import numpy as np

    from training import toy

    families = given["families"]
    problems = [replace(p, family=family) for p, family in zip(toy.problems(len(families)), families, strict=True)]
    scores = {p.id: list(s) for p, s in zip(problems, given.get("scores", [[]] * len(families)), strict=True) if s}
    state = {**given.get("state", {}), "scores": scores}
    rng = np.random.default_rng(0)
    drawn = Counter(problems[i].family for _ in range(given.get("draws", 1)) for i in piece(problems, state, rng, given["n"]))
    return {"shares": {k: drawn[k] / drawn.total() for k in sorted(set(families))}, "state": state}


def _clean(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from synth.types import Decision, Message, PreferencePair

    def pair(i: int, values: Mapping[str, Any]) -> PreferencePair:
        said = {"prompt": f"question {i}", "chosen": "a good answer", "rejected": "a bad answer"} | dict(values)
        said["decisions"] = tuple(Decision(**d) for d in said.get("decisions", ()))
        prompt = (Message(role="user", content=said.pop("prompt")),)
        return PreferencePair(id=f"{i:06d}", prompt=prompt, **{"source": "check", "split": "train"} | said)

    decisions = piece([pair(i, values) for i, values in enumerate(given["pairs"])])
    return {
        "actions": [d.action for d in decisions],
        "reasons": [d.reason.partition(":")[0] for d in decisions],
        "scores": [d.score for d in decisions],
    }


RUNNERS = {
    "curriculum": _curriculum,
    "advantage": _advantage,
    "filter": _filter,
    "reward": _reward,
    "ratio": _ratio,
    "correct": _correct,
    "surrogate": _surrogate,
    "regulariser": _regulariser,
    "prefer": _prefer,
    "head": _head,
    "value_loss": _value_loss,
    "guide": _guide,
    "schedule": _schedule,
    "overlap": _overlap,
    "placement": _placement,
    "evaluate": _evaluate,
    "clean": _clean,
    **problem_checks.RUNNERS,
}
