"""The processes that run a stage's environments and tools beside its sampler (`players` of a stage)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.models import tools
from tasks.planning import pieces
from tasks.runtime.stage import Stage
from training.env import is_live
from training.rollout.players import Built, Players


def players(
    stage: Stage, n: int, envs: Sequence[Any], hosts: Mapping[str, Any], search: Callable[[], Any], ray: str = ""
) -> Players | None:
    """`n` processes with the environments of the knob `envs`, which are `hosts` in this one, and the search tool that
    `search` opens, on this machine or on those of the Ray cluster at `ray`; None for 1 on this machine, which is this
    process. Raises UserError for environments that other processes cannot play, and for a cluster that does not take us in."""
    if n == 1 and not ray:
        return None
    where, remedy = (
        (f"{stage.name}.ray is {ray}", f"leave {stage.name}.ray out and set {stage.name}.players to 1")
        if ray
        else (f"{stage.name}.players is {n}", f"set {stage.name}.players to 1")
    )
    if drawn := sorted(name for name, host in hosts.items() if getattr(host, "draws", False)):
        raise UserError(
            f"{where}, and the environment {drawn[0]} draws pictures, which the process that samples must hold: {remedy}"
        )
    if all(is_live(host) for host in hosts.values()):
        raise UserError(f"{where}, and agent programs are processes already: {remedy}")
    specs = tuple({**e.keywords, "piece": e.piece.rpartition("/")[2]} for e in envs)
    if ray:
        from tasks.models.ray_players import OnRay, cluster_of  # imported here: few runs have a cluster

        plan = Path("artifacts", "plan", f"{stage.name}.json")
        cluster = cluster_of(ray, n, f"{stage.name}.ray", stage.root, plan, stage.work / "ray.log")
        cluster.connect()
        return OnRay(partial(build, specs, search), n, cluster=cluster)
    return Players(partial(build, specs, search), n)


def build(specs: Sequence[Mapping[str, Any]], search: Callable[[], Any]) -> Built:
    """Environments and tools by name, in the process of a player."""
    pieces.open_own()
    hosts = {n: h for n, h in tools.hosts([pieces.bind("env", s) for s in specs]).items() if not is_live(h)}
    return hosts, tools.bound(search(), hosts.values())
