"""An OpenAI-compatible endpoint, from the arguments of a command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tasks.core.errors import UserError
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
