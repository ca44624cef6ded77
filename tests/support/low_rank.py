"""What the gradients of low-rank adapters must be, from those of the weights that they stand for."""

from collections.abc import Iterator

import torch

from training.learner.learner import token_stats


def gradients(
    model: torch.nn.Module, folded: torch.nn.Module, batch, scale: float
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For every adapter of `model`, of B and then of A: the gradient it gets from `batch`, and the one of the definition.

    W + s B A: dB = s dW A', dA = s B' dW, with dW the gradient of all weights of `folded`, the same model as one matrix
    a layer.
    """
    for m in (model, folded):
        m.zero_grad()
        token_stats(m, batch).logp.sum().backward()
    full = dict(folded.named_parameters())
    for name, layer in model.named_modules():
        if hasattr(layer, "lora_A"):
            a, b, d = layer.lora_A["default"].weight, layer.lora_B["default"].weight, full[f"{name}.weight"].grad
            yield b.grad, scale * d @ a.detach().T
            yield a.grad, scale * b.detach().T @ d
