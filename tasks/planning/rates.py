"""Checks that learning rates suit the model: rates for a model from scratch destroy a pretrained one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.core.labels import TRAINED

MOST, MOST_LORA = 2e-4, 2e-3  # highest rates for a pretrained model: of all its weights, and of adapters


def warnings(plans: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A warning if the learning rates of a pretrained model have the wrong order of magnitude; else []."""
    params = {n: plans[n]["params"] for n in TRAINED if n in plans}
    model = params.get("sft", {}).get("model")
    high = [
        f"{name} {'muon' if p['optimizer']['kind'] == 'muon' else format(p['optimizer']['lr'], 'g')}"
        for name, p in params.items()
        if p["optimizer"]["kind"] == "muon" or p["optimizer"]["lr"] > (MOST_LORA if p.get("lora") else MOST)
    ]
    if not model or not high:
        return []
    return [
        f"warning: sft.model is {model}, a pretrained model, and these rates are of a model from scratch, which undo what it knows: "
        f"{', '.join(high)}; write `--set profile=pretrained-cpu` (or gpu), or set the `optimizer` of these stages"
    ]
