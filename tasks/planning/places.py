"""Where stages run: knobs annotated `Place()`, which are not in the plan files of stages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from tasks.core.errors import UserError, nearest
from tasks.planning.resolve import Resolved

ADDRESS = re.compile(r"(?!.*//)\S+:[0-9]+")
TRANSPORTS = ("disk", "nccl", "ipc")  # methods of training.rollout.publisher.Publisher
# Knobs whose product is the number of rows, or pairs, of one optimizer step. Each learner needs at least one.
ROWS = {
    "sft": ("rows_per_step",),
    "reward": ("pairs_per_step",),
    "prefer": ("pairs_per_step",),
    "rl": ("prompts_per_step", "samples_per_prompt"),
}


def of(stages: Mapping[str, Resolved]) -> dict[str, dict[str, Any]]:
    """Stage -> its knobs of place, for stages in which one is set. Raises UserError if a step has fewer rows
    than learners, for samplers or a transport that the engine does not allow, for players of a control task, and for what is no
    address of a Ray cluster."""
    out: dict[str, dict[str, Any]] = {}
    for s in stages.values():
        values = {k: v for k, v in s.params.items() if s.knobs[k].place}
        learners = values.get("learners", 1)
        check_learners(s.name, learners, s.params)
        if values.get("samplers", 1) > 1 and (engine := s.value("engine.name")) != "vllm":
            raise UserError(
                f"{s.name}.samplers is {values['samplers']}, and {s.name}.engine.name is {engine}: several samplers are "
                f"vLLM servers; set {s.name}.engine.name to vllm, or leave samplers out"
            )
        if (transport := values.get("transport", "disk")) != "disk":
            _check_transport(s, transport, values["samplers"])
        ray = values.get("ray", "")
        played, back = f"players is {values.get('players', 1)}", f"set {s.name}.players to 1"
        if ray:
            played, back = f"ray is {ray}", f"leave {s.name}.ray out"
        if (values.get("players", 1) > 1 or ray) and s.params.get("control") is not None:
            raise UserError(
                f"{s.name}.{played}, and the environments of {s.name}.control are arrays, which one process plays at the "
                f"same time: {back}"
            )
        if ray:
            check_address(ray, f"{s.name}.ray")
        check_shards(s.name, learners, values.get("shards", 1))
        if any(v != s.knobs[k].default for k, v in values.items()):
            out[s.name] = values
    return out


def _check_transport(s: Resolved, transport: str, samplers: int) -> None:
    """Raises UserError for a way by which weights would not reach the engine."""
    knob, back = f"{s.name}.transport", f"leave {s.name}.transport out"
    if transport not in TRANSPORTS:
        raise UserError(f"{knob} is {transport}: {nearest(str(transport), TRANSPORTS)} (docs/engines.md)")
    engine, started = s.value("engine.name"), samplers > 1
    if engine == "torch" or (engine == "vllm" and not started):
        raise UserError(
            f"{knob} is {transport}, and the engine {engine} is in the learner's process, where nothing travels: name vLLM servers in "
            f"{s.name}.engine.name, or {back}"
        )
    if s.params["policies"]:
        raise UserError(
            f"{knob} is {transport}, and of {s.name}.policies adapters alone are published, which vLLM reads as files: {back}"
        )
    if not str(s.params["device"]).startswith("cuda"):
        raise UserError(
            f"{knob} is {transport}, and the learner is on {s.params['device']}, from where NCCL and CUDA handles bring nothing: set "
            f"{s.name}.device=cuda, or {back}"
        )
    if transport == "ipc" and started:
        raise UserError(
            f"{knob} is ipc, and servers that the stage starts have devices of their own: name one that runs on the learner's device in "
            f"{s.name}.engine.name, or set {knob}=nccl"
        )


def devices(place: Mapping[str, int], nodes: int = 1) -> int:
    """The devices of one machine (of the first, where learners run on several) that a stage on devices takes: one for
    each learner there, and one for each of several samplers, which its first process starts."""
    samplers = place.get("samplers", 1)
    return place.get("learners", 1) // nodes + (samplers if samplers > 1 else 0)


def processes(place: Mapping[str, int]) -> int:
    """The processes of a stage that compute at a time, each with the stage's threads: its learners, or the makers of questions."""
    return place.get("learners", 1) * place.get("workers", 1)


def check_learners(stage: str, learners: int, params: Mapping[str, Any], what: str = "") -> None:
    """Raises UserError for more learners than a step has rows. what: how they were asked for, if not by `learners`."""
    if stage in ROWS and learners > (rows := math.prod(params[k] for k in ROWS[stage])):
        raise UserError(
            f"{stage}: {what} is {learners}, and a step has {rows} rows or pairs ({' x '.join(ROWS[stage])}): each process needs "
            f"one; start at most {rows}, or raise {ROWS[stage][0]}"
            if what
            else f"{stage}.learners is {learners}, and a step has {rows} rows or pairs ({' x '.join(ROWS[stage])}): "
            f"each learner needs one; set at most {rows}, or raise {ROWS[stage][0]}"
        )


def check_shards(stage: str, learners: int, shards: int) -> None:
    """Raises UserError for shards that do not divide the learners."""
    if learners % shards:
        raise UserError(
            f"{stage}.shards is {shards}, and {stage}.learners is {learners}: weights are split among all learners, or "
            f"among a number that divides them; set {stage}.shards to {learners} or to a divisor of it"
        )


def check_address(address: str, where: str) -> None:
    """Raises UserError, which names the knob `where`, for what is no address of a Ray cluster."""
    if address != "auto" and not ADDRESS.fullmatch(address):
        raise UserError(
            f"{where} is {address}, which is no address of a Ray cluster: write HOST:PORT, as `ray start --head` prints "
            "it (port 6379, if no other was asked for), or auto for the cluster that this machine is one of"
        )
