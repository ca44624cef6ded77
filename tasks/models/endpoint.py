"""An OpenAI-compatible endpoint, from the arguments of a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from synth.knowledge.model_facts import Stopped
from synth.types import Message, Sampling
from tasks.core.errors import UserError
from tasks.runtime.progress import Progress
from training.rollout.endpoint import Budget, Endpoint, Prices


def endpoint(
    url: str, model: str, cache: Path, *, tokens: int | None, cost: float | None, prices: Sequence[float] | None
) -> Endpoint:
    """prices: per million prompt and completion tokens; tokens, cost: the budget. The key is read from
    ESPALIER_API_KEY. Raises UserError for arguments that `Endpoint` refuses."""
    named = dict(zip(("prompt", "completion"), prices or (), strict=bool(prices)))
    try:
        return Endpoint(
            url=url,
            model=model,
            cache=cache,
            key=os.environ.get("ESPALIER_API_KEY", ""),
            prices=Prices(**named),
            budget=Budget(tokens=tokens, cost=cost),
        )
    except ValueError as error:
        raise UserError(str(error)) from error


AT_ONCE = 128  # prompts between two steps of the bar


def asker(endpoint: Endpoint, label: str, *, max_tokens: int = 512) -> Callable[[Sequence[str]], list[str]]:
    """A function from prompts to the greedy answers of the model, with a bar. It raises Stopped with the endpoint's
    errors."""
    sampling = Sampling(temperature=0.0, max_tokens=max_tokens, seed=0)

    def ask(prompts: Sequence[str]) -> list[str]:
        conversations = [[Message(role="user", content=text)] for text in prompts]
        out: list[str] = []
        with Progress(len(prompts), label) as progress:
            for at in range(0, len(prompts), AT_ONCE):
                some = conversations[at : at + AT_ONCE]
                try:
                    out += endpoint(some, sampling)
                except ValueError as error:
                    raise Stopped(str(error)) from error
                progress.update(len(some))
        return out

    return ask
