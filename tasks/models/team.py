"""Several policies that were trained together, loaded to play together again: adapters on one shared base."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase

from tasks.runtime.stage import Stage
from training.model import lora
from training.model.model import load_model


def roles_of(stage: Stage) -> dict[str, str]:
    """Role -> the policy that plays it, as rl.policies says (role exchanges during training are not applied); empty if
    the stage rl trained one policy."""
    file = stage.input("rl", "model").parent / "card.json"
    card = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}  # a model laid there by hand has none
    return {role: name for name, known in (card.get("policies") or {}).items() for role in known["roles"]}


def load_team(stage: Stage, played: Mapping[str, str], **how: Any) -> tuple[nn.Module, PreTrainedTokenizerBase]:
    """The base with the adapters of every policy under its name, and the tokenizer. how: arguments of `load_model`.
    Until a policy is selected, the first one speaks."""
    model, tokenizer = load_model(stage.input("sft", "model"), **how)
    names = list(dict.fromkeys(played.values()))
    for name in names:
        lora.load_adapters(model, Path(stage.input("rl", "policies")) / name, name)
    lora.use(model, names[0])
    if device := how.get("device"):
        model.to(device)
    return model.eval().requires_grad_(False), tokenizer


def cast(played: Mapping[str, str], hosts: Mapping[str, Any]) -> dict[str, str]:
    """The policy of every role of these environments. The team's policies play the roles that they were trained in; the
    first policy plays all other roles, and environments without roles."""
    first = next(iter(played.values()))
    others = {role: first for env in hosts.values() for role in ("", *getattr(env, "roles", ()))}
    return others | dict(played)
