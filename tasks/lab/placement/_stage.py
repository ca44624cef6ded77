"""Plans of a step of the stage `rl`, and the settings by which the stage carries a plan out.

The calls are `generate`, `reference` (if a reference model is needed) and `train`; their seconds are those of `espalier
estimate`. They come in two orders:

    in turn         generate, reference, train
    one step ahead  reference, train, and beside them generate of the next step (asynchrony one_off)

`generate` on all devices means that the first learner samples and the others wait, since the stage starts no servers on
devices of learners. On fewer devices, two or more, it means as many servers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.core.errors import UserError
from tasks.lab.placement._graph import Call, Plan, cost
from tasks.lab.placement.enumerated import enumerated
from tasks.lab.placement.metropolis import metropolis
from tasks.lab.placement.symmetric import symmetric
from tasks.planning import estimate

if TYPE_CHECKING:
    from tasks.planning.devices import Machines
    from tasks.planning.estimate import Setting
    from training.model.size import Size

ORDERS = {False: "in turn", True: "one step ahead"}
PIECES = {"symmetric": symmetric, "enumerated": enumerated, "metropolis": metropolis}
CARRIED = "carried out"  # in the place of a piece: the best plan that the stage can run


@dataclass(frozen=True, kw_only=True)
class Row:
    """seconds: predicted, of a step; saved: share of the symmetric plan's, None where the stage cannot run that one
    (too little memory); knobs: of the stage, {} for a plan that it does not carry out, and `why` says why not."""

    order: str
    piece: str
    plan: Plan
    seconds: float
    saved: float | None
    knobs: Mapping[str, Any]
    why: str = ""


def calls(
    sampling: Mapping[int, float], training: Mapping[int, float], reference: Mapping[int, float], ahead: bool
) -> list[Call]:
    """The calls of a step, from the seconds of each by its number of devices. An empty reference is left out."""
    out = [Call(name="generate", model="policy", seconds=sampling)]
    before = () if ahead else ("generate",)
    if reference:
        out.append(Call(name="reference", model="reference", seconds=reference, after=before))
        before = ("reference",)
    return [*out, Call(name="train", model="policy", seconds=training, after=before)]


def knobs(plan: Plan, devices: int, ahead: bool) -> dict[str, Any]:
    """The knobs of the stage that carry a plan out. Raises ValueError, which says what the stage cannot do."""
    (first, n), (own, learners) = plan["generate"], plan["train"]
    if plan.get("reference", plan["train"]) != plan["train"]:
        raise ValueError("the reference has other devices than training, and the stage computes it on the learners'")
    if n == devices:
        return {"learners": learners, "asynchrony": "sync"}
    if first < own + learners and own < first + n:
        raise ValueError("sampling and training share devices, and servers that the stage starts have their own")
    if n == 1:
        raise ValueError("one sampler has a device of its own, and the stage starts two servers or more")
    return {"learners": learners, "samplers": n, "engine": "vllm", "asynchrony": "one_off" if ahead else "sync"}


def _runnable(step: list[Call], devices: int, ahead: bool) -> Iterator[Plan]:
    """Every plan that the stage carries out: learners have the first devices, samplers those that follow."""
    sampling, training = step[0].seconds, step[-1].seconds
    for learners in training:
        rest = {c.name: (0, learners) for c in step[1:]}
        if learners == devices and devices in sampling and not ahead:
            yield {"generate": (0, devices), **rest}
        for n in sampling:
            if 1 < n <= devices - learners:
                yield {"generate": (learners, n), **rest}


def rows(steps: Mapping[bool, list[Call]], devices: int) -> list[Row]:
    """The plan of each piece in each order, and the best that the stage carries out. steps: one step ahead or not -> its
    calls, in turn first. `enumerated` is missing where it refuses so many plans."""
    out: list[Row] = []
    base = None
    for ahead, step in steps.items():
        found: dict[str, Plan] = {}
        for name, piece in PIECES.items():
            if not (ahead and name == "symmetric"):  # nothing is beside anything: the same in both orders
                with contextlib.suppress(ValueError):
                    found[name] = piece(step, devices, 0.0, np.random.default_rng(0))
        runnable = list(_runnable(step, devices, ahead))
        if runnable:
            found[CARRIED] = min(runnable, key=lambda plan: cost(step, plan, devices))  # noqa: B023
        for name, plan in found.items():
            try:
                own, why = knobs(plan, devices, ahead), ""
            except ValueError as e:
                own, why = {}, str(e)
            seconds = cost(step, plan, devices)
            if name == "symmetric" and own:
                base = seconds
            saved = None if base is None else 1 - seconds / base
            out.append(
                Row(order=ORDERS[ahead], piece=name, plan=plan, seconds=seconds, saved=saved, knobs=own, why=why)
            )
    return out


def of_stage(
    plan: Mapping[str, Any], model: Size, at: Machines, method: str
) -> tuple[dict[bool, list[Call]], dict[tuple[str, int], Setting]]:
    """The calls of a step of `rl` in both orders, and (order, learners) -> the quickest setting of so many.

    One step ahead the learner's process keeps a second copy of the weights, and none are split: settings without room
    for that are left out, and the order with them. Both are empty if nothing fits. Raises UserError for several
    machines, and for more devices than a step has rows."""
    p, needs, n = plan["params"], set(plan.get("needs", ())), at.devices
    if at.nodes > 1:
        raise UserError("--place plans the devices of one machine, on which the samplers are: write for example 8xH200")
    if n > (most := estimate.rows_of("rl", p)):
        raise UserError(f"--place: a step of rl has {most} rows, and --gpus gives {n} devices: name at most {most}")
    together = [s for s in estimate.settings("rl", plan, model, at, method) if s.learners == n]
    apart = list(estimate.settings("rl", plan, model, at, method, 2)) if n > 2 else []
    copy = model.parameters * (2 if p["dtype"] == "bfloat16" else 4)
    steps: dict[bool, list[Call]] = {}
    chosen: dict[tuple[str, int], Setting] = {}
    for ahead in ORDERS:
        fits = [s for s in apart if s.shards == 1 and s.total + copy <= estimate.FREE * at.device.memory or not ahead]
        if ahead and not fits:
            continue
        by = {k: estimate.quickest([s for s in (*together, *fits) if s.learners == k]) for k in range(1, n + 1)}
        best = {k: s for k, s in by.items() if s is not None}
        if not best:
            continue
        training, reference = {}, {}
        for k, s in best.items():
            used = {**p, **s.knobs}
            alone = estimate.step("rl", used, needs - {"reference"}, model, at, k, s.shards, s.samplers)
            training[k] = sum(v for part, v in alone.items() if part != "sampling")
            reference[k] = sum(s.time.values()) - sum(alone.values())
        sampling = {k: estimate.step("rl", p, (), model, at, 1, 1, k)["sampling"] for k in range(2, n if fits else 0)}
        if n in best:
            sampling[n] = best[n].time["sampling"]
        steps[ahead] = calls(sampling, training, reference if "reference" in needs else {}, ahead)
        chosen |= {(ORDERS[ahead], k): s for k, s in best.items()}
    return steps, chosen


def flags(row: Row, setting: Setting, plan: Mapping[str, Any]) -> list[str]:
    """A plan that is carried out, as flags of `espalier run`, without those that are as planned."""
    p, out = plan["params"], replace(setting, samplers=row.knobs.get("samplers", 1)).flags(plan)
    if row.knobs.get("engine", p["engine"]["name"]) != p["engine"]["name"]:
        out.append(f"--set rl.engine.name={row.knobs['engine']}")
    if row.knobs["asynchrony"] != p["asynchrony"]["piece"]:
        out.append(f"--set rl.asynchrony.piece={row.knobs['asynchrony']}")
    return out
