"""ROSA: after each turn of feedback, one closed-form step of a few parameters to the optimum that the feedback names.

"Test-Time Policy Adaptation for Enhanced Multi-Turn Interactions with LLMs" 2025 (arXiv 2509.23166); read in the
abstract, the equations are our reading.

    pi*(v) = pi(v) exp(r 1[v = y_t] / beta) / Z_t           the optimum under a KL to pi, at each token y_t of an answer
    delta_t = log pi* - log pi = r / beta 1[v = y_t] - log Z_t,   Z_t = 1 + pi(y_t) (exp(r / beta) - 1)
    d theta = argmin sum_t ||J_t d - delta_t||^2 + damp ||d||^2 = (sum J_t^T J_t + damp I)^-1 sum J_t^T delta_t

theta [d] is added to the residual stream after the last block while an answer is drawn, J_t = d log pi / d theta there.
The user is the reward model: an answer of `threshold` or more is good and is given; any other is a turn with r = -1, after
which the next answer is drawn with the new theta. The answer of the last turn is given where none was good. theta begins
at 0 for each ask, and no weight changes. adapt: False is the control: another draw after each bad one.

Leaves out the conversation as context: each answer is to the prompt alone. The system is solved and not iterated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.types import seed_for
from training.decode import Account, Ask, Decoded, Draw, Engine
from training.decode._engine import VERDICT
from training.model.residual import AddVector
from training.types import Segment

NEEDS = {"reward_model"}


def rosa(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    turns: int = 5,
    beta: float = 1.0,
    damp: float = 0.01,
    threshold: float = 0.5,
    adapt: bool = True,
) -> list[Decoded]:
    if turns < 1 or beta <= 0 or damp <= 0:
        raise ValueError(f"turns {turns}, beta {beta} and damp {damp}: turns is 1 or more, the others are above 0")
    norm, head = engine.read_out()
    layer, width = engine.layers - 1, head.shape[1]
    accounts = [Account(limit=ask.forward_tokens) for ask in asks]
    theta = [torch.zeros(width, dtype=torch.float64, device=head.device) for _ in asks]
    last: dict[int, Segment] = {}
    open_ = list(range(len(asks)))
    for turn in range(turns):
        draws = []
        for i in open_:
            edit = AddVector(vector=theta[i], layer=layer, start=len(asks[i].prompt) - 1) if turn and adapt else None
            draws.append(
                Draw(
                    account=accounts[i],
                    prompt=asks[i].prompt,
                    seed=seed_for(asks[i].seed, "turn", turn),
                    max_tokens=engine.room(asks[i], accounts[i]),
                    edit=edit,
                )
            )
        last |= dict(zip(open_, engine.sample(draws), strict=True))
        whole = {i: np.concatenate([asks[i].prompt, last[i].ids]) for i in open_}
        # A verdict, what is read for the step, and another answer of this length at least.
        more = [i for i in open_ if accounts[i].left >= 3 * len(whole[i]) + VERDICT]
        if turn == turns - 1 or not more:
            break
        rewards = engine.rate([(accounts[i], whole[i]) for i in more])
        open_ = [i for i, r in zip(more, rewards, strict=True) if not r >= threshold]
        if adapt and open_:
            streams = engine.read([(accounts[i], whole[i]) for i in open_], layer)
            for i, stream in zip(open_, streams, strict=True):
                before = stream[len(asks[i].prompt) - 1 : -1].double() + theta[i]
                theta[i] = theta[i] + step(before, last[i].ids, -1.0, norm, head, beta, damp)
    return [Decoded(segment=last[i], account=accounts[i]) for i in range(len(asks))]


@torch.no_grad()
def step(
    stream: Tensor, ids: np.ndarray, r: float, norm: Callable[[Tensor], Tensor], head: Tensor, beta: float, damp: float
) -> Tensor:
    """d theta [d] for feedback r on the ids [n] that were drawn from the streams [n, d] after the last block."""
    w = head.double()
    square, total = w.T @ w, w.sum(0)
    a = damp * torch.eye(w.shape[1], dtype=torch.float64, device=w.device)
    b = torch.zeros_like(total)
    for x, y in zip(stream, ids.tolist(), strict=True):
        with torch.inference_mode(False), torch.enable_grad():
            slope = torch.autograd.functional.jacobian(
                lambda z: norm(z.to(head.dtype)).double(), x.double().clone().detach(), vectorize=True
            ).double()
        p = torch.softmax(w @ norm(x.to(head.dtype)).double(), 0)
        mean = p @ w
        # (W - 1 mean^T)^T (W - 1 mean^T) and (W - 1 mean^T)^T delta, without a matrix of the vocabulary's size.
        inner = square - torch.outer(total, mean) - torch.outer(mean, total) + len(w) * torch.outer(mean, mean)
        log_z = torch.log1p(p[y] * float(np.expm1(r / beta)))
        pull = r / beta * (w[y] - mean) - log_z * (total - len(w) * mean)
        a = a + slope.T @ inner @ slope
        b = b + slope.T @ pull
    return torch.linalg.solve(a, b)
