"""How much the tokens of an answer attend to the prompt: a column for token-level ratios.

"Diagnose, Localize, Align: A Full-Stack Framework for Reliable LLM Multi-Agent Systems under Instruction Conflicts"
2025 (SAIL, arXiv 2509.23188).

columns["attention"] [T] of the cleaned pairs' rows, computed once with the initial policy, by one forward pass per row
with plain attention; `layers` are those whose heads are averaged. The ratio `attended` reads it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from training.learner.pack import Row
from training.model.lora import folded
from training.preference.update_rule import UpdateRule

PROVIDES = {"attention"}


class attention_weights(UpdateRule):
    def __init__(self, *, layers: Sequence[int] = (0,)) -> None:
        if not layers:
            raise ValueError("attention_weights: `layers` is empty: name the layers whose attention counts")
        self.layers = layers

    def rows(self, policy: nn.Module, rows: list[Row]) -> list[Row]:
        return with_attention(policy, rows, self.layers)


@torch.no_grad()
def with_attention(model: nn.Module, rows: Sequence[Row], layers: Sequence[int]) -> list[Row]:
    """The rows with the column "attention" [n]: for every trainable token, the attention that the token before it
    (which predicts it) pays to the row's prompt (the tokens before the first trainable one), mean over the heads of
    `layers`; 0 elsewhere.

    It runs a copy of the model with plain attention, one row at a time. Raises ValueError for a layer that the model
    does not have.
    """
    config: Any = copy.deepcopy(model.config)
    if bad := [i for i in layers if not 0 <= i < config.num_hidden_layers]:
        raise ValueError(
            f"the model has the layers 0 to {config.num_hidden_layers - 1}, not {bad[0]}: fix attention_weights.layers"
        )
    config._attn_implementation = "eager"
    plain = type(model)(config).to(device=next(model.parameters()).device, dtype=next(model.parameters()).dtype).eval()
    plain.load_state_dict(folded(model))
    out = []
    for row in rows:
        ids = torch.from_numpy(row.ids.astype(np.int64))[None].to(next(model.parameters()).device)
        attentions = plain(input_ids=ids, output_attentions=True, use_cache=False).attentions
        start = int(row.trainable.argmax())
        mass = (
            torch.stack([attentions[i][0, :, :, :start].sum(-1).float().mean(0) for i in layers]).mean(0).cpu().numpy()
        )
        column = np.where(row.trainable, np.concatenate([[0.0], mass[:-1]]), 0.0)
        out.append(replace(row, columns={**row.columns, "attention": column}))
    return out
