"""A policy that writes no tokens: a small network from an observation to actions, and its log-probs as `TokenStats`.

A row of a batch is an episode: a first entry that marks its beginning and is never trainable, then one entry per
step. columns["observation"] [T, d] is the observation before the action; `ids` [T] is the action if actions are
discrete, columns["action"] [T, k] if they are numbers. Everything above `TokenStats` works as for text.

Sizes and initial weights are those of CleanRL's `ppo.py` (Huang et al. 2022, "CleanRL", JMLR 23): two hidden layers of
64 with tanh, orthogonal weights with gain sqrt 2 (last layer of the policy 0.01, of the value 1), a deviation of
actions that does not depend on the state.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training.types import Batch, TokenStats


def layers(sizes: list[int], gain: float, generator: torch.Generator) -> nn.Sequential:
    modules: list[nn.Module] = []
    for i, (into, out) in enumerate(zip(sizes, sizes[1:], strict=False)):
        last = i == len(sizes) - 2
        layer = nn.Linear(into, out)
        nn.init.orthogonal_(layer.weight, gain if last else math.sqrt(2), generator=generator)
        nn.init.zeros_(layer.bias)
        modules += [layer] if last else [layer, nn.Tanh()]
    return nn.Sequential(*modules)


class ControlPolicy(nn.Module):
    """observation [n, d] -> logits [n, actions], or the mean [n, actions] of a normal distribution.

    temperature divides logits, and multiplies the variance of a normal distribution: p^(1/T), normalised.
    """

    model_type = "espalier_control"

    def __init__(self, *, observation: int, actions: int, continuous: bool = False, hidden: int = 64, seed: int = 0):
        super().__init__()
        self.made = {"observation": observation, "actions": actions, "continuous": continuous, "hidden": hidden}
        generator = torch.Generator().manual_seed(seed % 2**63)
        self.layers = layers([observation, hidden, hidden, actions], 0.01, generator)
        self.log_deviation = nn.Parameter(torch.zeros(actions)) if continuous else None

    @property
    def continuous(self) -> bool:
        return self.log_deviation is not None

    def forward(self, observation: Tensor) -> Tensor:
        return self.layers(observation)

    def normal(self, mean: Tensor, temperature: float) -> torch.distributions.Normal:
        assert self.log_deviation is not None
        return torch.distributions.Normal(mean, self.log_deviation.exp().expand_as(mean) * math.sqrt(temperature))


class ControlValue(nn.Module):
    """observation [n, d] -> value [n], by a separate network."""

    def __init__(self, *, observation: int, hidden: int = 64, seed: int = 0) -> None:
        super().__init__()
        self.layers = layers([observation, hidden, hidden, 1], 1.0, torch.Generator().manual_seed(seed % 2**63))

    def forward(self, observation: Tensor) -> Tensor:
        return self.layers(observation).squeeze(1)


class Actor(Protocol):
    """A network that acts: `ControlPolicy`, or one that a world brings (training/model/flow.py).

    continuous   whether actions are numbers: the output is then read by `normal`, otherwise it is logits
    made         the arguments that make it again       model_type   the name of its kind in config.json
    """

    model_type: str
    made: dict[str, Any]

    @property
    def continuous(self) -> bool: ...

    def __call__(self, observation: Tensor) -> Tensor: ...

    def normal(self, out: Tensor, temperature: float, /) -> torch.distributions.Normal: ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


def action_stats(model: Actor, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
    """logp [T] and entropy [T] of the action of each step, 0 at the beginning of each row. A network with a function
    `extras(observation, chosen, out)` adds what else a piece reads of it: [n, ...] by name, as extras [T, ...]."""
    at = batch.trainable.nonzero().squeeze(1)
    seen, chosen = batch.columns["observation"].index_select(0, at), batch.ids.index_select(0, at)
    out = model(seen)
    n = len(batch.ids)

    def spread(x: Tensor) -> Tensor:
        return torch.zeros((n, *x.shape[1:]), dtype=x.dtype, device=x.device).index_add(0, at, x)

    more = getattr(model, "extras", None)
    extras = {} if more is None else {k: spread(x) for k, x in more(seen, chosen, out).items()}

    if model.continuous:
        normal = model.normal(out, temperature)
        logp = normal.log_prob(batch.columns["action"].index_select(0, at)).sum(1)
        return TokenStats(logp=spread(logp), entropy=spread(normal.entropy().sum(1)), extras=extras)
    log_p = torch.log_softmax(out.float() / temperature, -1)
    logp = log_p.gather(1, chosen[:, None]).squeeze(1)
    entropy = -(log_p.exp() * log_p).sum(1)
    return TokenStats(logp=spread(logp), entropy=spread(entropy), extras=extras, distribution=lambda: log_p)


def control_values(model: ControlValue, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
    """extras["value"] [T]: V of the observation before each action, 0 at the beginning of each row."""
    at = batch.trainable.nonzero().squeeze(1)
    value = model(batch.columns["observation"].index_select(0, at))
    spread = torch.zeros(len(batch.ids), dtype=value.dtype, device=value.device).index_add(0, at, value)
    return TokenStats(logp=torch.zeros_like(spread), extras={"value": spread})


def save_policy(model: Actor, path: Path) -> None:
    """Weights as safetensors and sizes as JSON, in one folder, whole or not at all."""
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    save_file({k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}, part / "model.safetensors")
    sizes = {"model_type": model.model_type, **model.made}
    (part / "config.json").write_text(json.dumps(sizes, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    shutil.rmtree(path, ignore_errors=True)
    os.replace(part, path)


def load_policy(path: Path, kind: Any = ControlPolicy) -> Any:
    """Load what `save_policy` wrote. kind: the class of network. Raises ValueError for another kind of model."""
    sizes = json.loads((path / "config.json").read_text(encoding="utf-8"))
    if sizes.pop("model_type", None) != kind.model_type:
        raise ValueError(
            f"{path} holds no policy of actions of this kind: name a folder that the stage rl wrote with the knob control"
        )
    model = kind(**sizes)
    model.load_state_dict(load_file(path / "model.safetensors"))
    return model
