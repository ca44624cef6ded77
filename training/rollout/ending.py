"""When a turn ends: the end-of-turn id, other ids, strings that may straddle tokens, or one of a few given texts
written out."""

from __future__ import annotations

from dataclasses import dataclass, field

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from synth.types import Sampling
from training.model.render import Renderer
from training.types import Stop


@dataclass
class Ending:
    """Why a turn ends at a token. `may_end` [V] says which tokens have to be checked at all, so that the others cost
    nothing per row: a string can only be complete after a token whose text has the string's last letter (or is not
    valid text alone)."""

    end_id: int
    sampling: Sampling
    renderer: Renderer | None
    may_end: np.ndarray
    _known: dict[int, bool] = field(default_factory=dict)

    @staticmethod
    def of(sampling: Sampling, end_id: int, renderer: Renderer | None, vocabulary: int) -> Ending:
        """Raises ValueError for stop strings without a renderer, and for ids that the model does not have."""
        if (sampling.stop or sampling.choices) and renderer is None:
            option = "stop strings" if sampling.stop else "choices"
            raise ValueError(f"the sampler needs a renderer for {option}: give it renderer=Renderer(tokenizer)")
        wrong = [i for i in sampling.stop_ids if not 0 <= i < vocabulary]
        if wrong:
            raise ValueError(
                f"stop_ids holds {wrong[0]} and the model has the ids 0 to {vocabulary - 1}: take ids of its own tokenizer"
            )
        may_end = np.full(vocabulary, bool(sampling.stop))
        may_end[[i for i in (end_id, *sampling.stop_ids) if i >= 0]] = True
        return Ending(end_id, sampling, renderer, may_end)

    def why(self, token: int, written: np.ndarray) -> Stop | None:
        """The reason why the turn whose last id is `token` ends there; `written` are all of its ids."""
        if token == self.end_id:
            return "end"
        if token in self.sampling.stop_ids:
            return "stop_id"
        if not self.sampling.stop or self.renderer is None:
            return None
        if token not in self._known:
            text = self.renderer.tokenizer.decode([token])
            self._known[token] = "\ufffd" in text or any(s[-1].isspace() or s[-1] in text for s in self.sampling.stop)
            self.may_end[token] = self._known[token]
        if not self._known[token]:
            return None
        text = self.renderer.decode(written)
        return "stop_string" if any(s in text for s in self.sampling.stop) else None


class ChoiceTree:
    """Choices as a tree of tokens: a turn is one of `Sampling.choices`, in the tokenizer's own spelling, and the
    end-of-turn id.

    A choice that is a prefix of another may end or continue, as the model decides. The model's distribution is
    restricted to the allowed tokens at each step and renormalised, so the log-probs of a turn are those of the
    distribution really sampled from.

    allowed  [nodes, A] ids that may follow, padded with 0                there  [nodes, A] whether an entry is a real
             one
    child    [nodes, A] node to which each leads; an end leads to itself

    Several lists of choices are several trees: list k begins at node k, so that rows of one batch may have different ones.
    """

    def __init__(self, lists: Sequence[Sequence[np.ndarray]], device: torch.device | str) -> None:
        edges: list[dict[int, int]] = [{} for _ in lists]
        for k, choices in enumerate(lists):
            for ids in choices:
                node = k
                for i in map(int, ids):
                    if i not in edges[node]:
                        edges.append({})
                        edges[node][i] = len(edges) - 1
                    node = edges[node][i]
        wide = max(map(len, edges))
        self.allowed = torch.zeros(len(edges), wide, dtype=torch.long)
        self.there = torch.zeros(len(edges), wide, dtype=torch.bool)
        self.child = torch.arange(len(edges))[:, None].repeat(1, wide)
        for node, out in enumerate(edges):
            for k, (i, to) in enumerate(sorted(out.items())):
                self.allowed[node, k], self.there[node, k], self.child[node, k] = i, True, to
        self.there[~self.there.any(1), 0] = True  # after the end anything may be drawn; nothing reads it
        self.allowed, self.there, self.child = (x.to(device) for x in (self.allowed, self.there, self.child))

    @staticmethod
    def of(sampling: Sampling, renderer: Renderer, device: torch.device | str) -> ChoiceTree:
        """Raises ValueError for a choice that does not fit into a turn."""
        ids = [renderer.turn(c) for c in sampling.choices]
        for choice, x in zip(sampling.choices, ids, strict=True):
            if len(x) > sampling.max_tokens:
                raise ValueError(
                    f"the choice {choice!r} and its end have {len(x)} tokens, more than max_tokens = {sampling.max_tokens}: raise it or "
                    "shorten the choice"
                )
        return ChoiceTree([ids], device)

    def cut(self, logits: Tensor, node: Tensor) -> Tensor:
        """Logits [B, V] and the node [B] of each row -> logits [B, A] of the tokens that may follow."""
        return logits.gather(1, self.allowed[node]).masked_fill(~self.there[node], -torch.inf)

    def step(self, node: Tensor, pick: Tensor) -> tuple[Tensor, Tensor]:
        """For the drawn indices [B] among the A allowed tokens: their ids, and the nodes to which they lead."""
        return self.allowed[node, pick], self.child[node, pick]
