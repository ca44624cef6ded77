"""The routers of a mixture of experts: how evenly they spread tokens, as a loss (Fedus et al. 2021, "Switch
Transformers", arXiv 2101.03961, equations 4 to 6), by the model's own function in transformers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def balance(model: nn.Module) -> Iterator[Callable[[], Tensor]]:
    """Gives a function that says the loss of the forward pass within, over all of its tokens and layers. Raises ValueError
    for a model without routers, and for one that balances them by a bias of its own (DeepSeek V3)."""
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
