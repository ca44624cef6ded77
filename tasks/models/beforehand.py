"""What a run needs beyond its own processes, asked for before anything is spent: a Ray cluster, vLLM servers, vLLM itself,
and devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.planning import places

INSTALLED = "on a CPU `make engine-cpu`, on a GPU `pip install -c constraints.txt -e '.[vllm]'`"  # how vLLM is
ANSWER = 10.0  # seconds in which a server answers; it waits for no model here
Plans = Mapping[str, Mapping[str, Any]]


def wanted(plans: Plans) -> set[str]:
    """The stages that need any of it."""
    return {s for s in plans if s != "_run" and (_place(plans, s).get("ray") or _engine(plans, s) or _cuda(plans, s))}


def check(root: Path, plans: Plans, stages: Iterable[str], *, fresh: bool = True, devices: int | None = None) -> None:
    """Raises UserError, which names the knob, for what one of these stages needs and does not find.

    fresh    whether the policy is trained from `sft.model` or anew in this run; else it is in artifacts/sft/model
    devices  those that a stage may use; None: all of this machine
    """
    for stage in sorted(stages):
        place, engine = _place(plans, stage), _engine(plans, stage)
        if address := place.get("ray"):
            from tasks.runtime.cluster import check as answers

            answers(address, f"{stage}.ray")
        if _cuda(plans, stage):
            _check_devices(plans, stage, devices)
        if engine == "vllm" and find_spec("vllm") is None:
            raise UserError(
                f"{stage}.engine.name is vllm, which is not installed: {INSTALLED}; or leave {stage}.engine.name out"
            )
        if engine.startswith(("http://", "https://")):
            params = plans[stage]["params"]
            shape = _shape(root, plans, fresh) | {"dtype": params["dtype"]}
            for url in (u.strip().removesuffix("/").removesuffix("/v1") for u in engine.split(",")):
                _check_server(stage, url, tuple(sorted(shape.items())), params["sampling"]["max_tokens"], fresh)


def _place(plans: Plans, stage: str) -> Mapping[str, Any]:
    return (plans.get("_run") or {}).get("place", {}).get(stage, {})


def _engine(plans: Plans, stage: str) -> str:
    """The engine of a stage that needs something of its own; "" for torch."""
    name = str((plans[stage].get("params", {}).get("engine") or {}).get("name", ""))
    return "" if name == "torch" else name


def _cuda(plans: Plans, stage: str) -> bool:
    return str(plans[stage].get("params", {}).get("device", "")).startswith("cuda")


def _check_devices(plans: Plans, stage: str, devices: int | None) -> None:
    import torch

    here = torch.cuda.device_count() if devices is None else devices
    place = _place(plans, stage)
    if (needed := places.devices(place)) > here:
        parts = [f"{stage}.{k} is {place[k]}" for k in ("learners", "samplers") if place.get(k, 1) > 1]
        lower = f"lower {' or '.join(p.split(' is ')[0] for p in parts)}, or " if parts and here else ""
        raise UserError(
            f"{stage}: device is {plans[stage]['params']['device']!r}{''.join(f', {p}' for p in parts)}, which takes {needed} "
            f"device{'s' * (needed > 1)}, and {'a stage has' if devices is not None else 'this machine has'} {here}: {lower}set "
            f"{stage}.device=cpu"
        )


def _shape(root: Path, plans: Plans, fresh: bool) -> dict[str, int]:
    """The sizes of the policy that are known before it is made, by the names that a server says them by."""
    from training.model.size import size_of

    sft = (plans.get("sft") or {}).get("params", {})
    if fresh and sft and not sft.get("model"):
        return {"hidden_size": sft["hidden"], "num_hidden_layers": sft["layers"]}
    size = size_of(sft["model"] if fresh and sft else root / "artifacts" / "sft" / "model")
    return {"hidden_size": size.hidden, "num_hidden_layers": size.layers} if size else {}


@lru_cache
def _check_server(stage: str, url: str, shape: tuple[tuple[str, Any], ...], longest: int, fresh: bool) -> None:
    from training.rollout.engine import EngineLost
    from training.rollout.servers import suits
    from training.rollout.vllm_engine import Server

    server, knob = Server(url, Path(), timeout=ANSWER, patience=0.0), f"{stage}.engine.name"
    if not server.answers():
        first = ", after `espalier run --stage sft` if it is to serve the model that sft makes" if fresh else ""
        raise UserError(
            f"{knob}: no server answers at {url} within {ANSWER:g} s: start it as docs/engines.md says{first}, or leave {knob} out"
        )
    try:
        suits(url, server.about(), dict(shape), longest)
    except (EngineLost, ValueError, LookupError, TypeError) as e:
        raise UserError(f"{knob}: {e}") from None
