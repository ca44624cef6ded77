"""The routers of a mixture of experts: how evenly they spread tokens, as a loss (Fedus et al. 2021, "Switch
Transformers", arXiv 2101.03961, equations 4 to 6), by the model's own function in transformers; and which experts they
chose, recorded when tokens are sampled and replayed when they are trained on (Ma et al. 2025, "Stabilizing MoE
Reinforcement Learning by Aligning Training and Inference Routers", arXiv 2510.11370)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def balance(model: nn.Module) -> Iterator[Callable[[], Tensor]]:
    """Yields a function that returns the loss of the forward pass within the context, over all its tokens and layers.
    Raises ValueError for a model without routers, and for one that balances them by its own bias (DeepSeek V3)."""
    recorder = (getattr(type(model.base_model), "_can_record_outputs", None) or {}).get("router_logits")
    loss = getattr(sys.modules[type(model).__module__], "load_balancing_loss_func", None)
    if recorder is None or loss is None:
        raise ValueError(
            f"router_loss: a {type(model).__name__} has no router whose experts a loss could balance; leave router_loss out"
        )
    at = recorder.index
    logits: list[Tensor] = []
    hooks = [
        m.register_forward_hook(lambda _, __, out: logits.append(out[at]))
        for m in model.modules()
        if isinstance(m, recorder.target_class)
    ]
    try:
        yield lambda: loss(tuple(logits), model.num_experts, model.num_experts_per_tok)
    finally:
        for hook in hooks:
            hook.remove()


class Replay:
    """Which experts the routers of a model choose: recorded, or taken from `chosen`. `of` attaches a `Replay` to a
    model, and `replay_of` finds it.

    chosen  [S, layers, k] experts of each of the S tokens of the next pass, -1 where the router chooses by itself;
            None: it always chooses. It stays set for the backward pass, which may recompute layers
    seen    of the last pass, [S, layers, k], if `recording` is set
    """

    def __init__(self, model: nn.Module) -> None:
        recorder = (getattr(type(model.base_model), "_can_record_outputs", None) or {}).get("router_logits")
        kind = getattr(recorder, "target_class", ())
        routers: list[Any] = [m for m in model.modules() if kind and isinstance(m, kind)]
        if not routers:
            raise ValueError(
                f"router_replay: a {type(model).__name__} has no router whose experts could be replayed; leave router_replay out"
            )
        self.chosen: Tensor | None = None
        self.recording = False
        self._seen: list[Tensor | None] = [None] * len(routers)
        with torch.no_grad():
            probe = torch.linspace(-1, 1, 4 * routers[0].hidden_dim, device=routers[0].weight.device)
            logits, scores, own = routers[0](probe.view(4, -1).to(routers[0].weight.dtype))
            if not torch.allclose(_weights(routers[0], logits, own).float(), scores.float(), atol=1e-5):
                raise ValueError(
                    f"router_replay: the router of a {type(model).__name__} weights its experts in a way that is not supported here; leave router_replay out"
                )
        for layer, router in enumerate(routers):
            router.register_forward_hook(partial(self._routed, layer))

    @staticmethod
    def of(model: nn.Module) -> Replay:
        language_model: Any = model
        language_model.router_replay = Replay(model)
        return language_model.router_replay

    def _routed(self, layer: int, router: Any, _: Any, out: tuple[Tensor, Tensor, Tensor]) -> Any:
        logits, scores, own = out
        if self.recording:
            self._seen[layer] = own.detach()
        if self.chosen is None:
            return None
        chosen = self.chosen[:, layer].to(own.dtype)
        experts = torch.where(chosen < 0, own, chosen)
        return logits, _weights(router, logits, experts).to(scores.dtype), experts

    def seen(self) -> Tensor:
        """[S, layers, k] int16"""
        return torch.stack([x for x in self._seen if x is not None], 1).to(torch.int16)


def replay_of(model: nn.Module) -> Replay | None:
    """The model's `Replay`; None if it has none."""
    return getattr(model, "router_replay", None)


def _weights(router: Any, logits: Tensor, experts: Tensor) -> Tensor:
    """logits [S, experts], experts [S, k] -> the weight of each of the k, [S, k]: the softmax of Qwen and Mixtral or
    the sigmoid of DeepSeek V3, as transformers computes it for the chosen experts."""
    if hasattr(router, "e_score_correction_bias"):
        weights = logits.sigmoid().gather(1, experts)
        if router.norm_topk_prob:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * router.routed_scaling_factor
    weights = torch.softmax(logits.float(), -1).gather(1, experts)
    return weights / weights.sum(-1, keepdim=True) if getattr(router, "norm_topk_prob", True) else weights
