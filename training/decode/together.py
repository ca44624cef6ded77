"""Two decoders at once: draws of a model that one has changed, among which the other chooses.

Wang et al. 2022, "Self-Consistency Improves Chain of Thought Reasoning in Language Models" (arXiv 2203.11171) vote among draws of
the model as it is; here they vote among those of a steered or edited one. That the two go together is our reading.

    y_1 .. y_n ~ p'        p': the model under `change`          y = choose(y_1 .. y_n)

change: `steer` adds its vector to the residual stream of every draw from the prompt's last token on; each draw then reads that
token anew, which counts.
`model_surgery` draws from the edited weights. choose: greedy, majority, best_of_n or tournament, with n draws (0: as many as the
budget allows). Both with their own defaults, but for alpha and the layer where they are named. Other pairs are refused: what
decides on the way how one answer goes on leaves nothing for another to decide, and a draft is made for the model as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from training.decode import Ask, Decoded, Engine, Example, model_surgery, steer
from training.decode.best_of_n import best_of_n
from training.decode.greedy import greedy
from training.decode.majority import majority
from training.decode.tournament import tournament
from training.model.residual import AddVector

NEEDS = {"reward_model"}
CHANGES = ("steer", "model_surgery")
CHOICES = ("greedy", "majority", "best_of_n", "tournament")
DRAFTS = ("speculate", "draft_tree")


def _knobs(alpha: float | None, layer: int | None) -> dict[str, Any]:
    """Those that are named."""
    return {k: v for k, v in (("alpha", alpha), ("layer", layer)) if v is not None}


def _allowed(change: str, choose: str) -> None:
    """Raises ValueError for two that do not go together."""
    for knob, name, may in (("change", change, CHANGES), ("choose", choose, CHOICES)):
        if name not in may:
            why = "drafts for the model as it is" if name in DRAFTS else "answers by itself, draw by draw"
            if knob == "change" and name in CHOICES:
                why = "changes nothing in the model"
            if knob == "choose" and name in CHANGES:
                why = "does not choose among draws"
            raise ValueError(f"{knob} is {name!r}, which {why}: take {', '.join(may[:-1])} or {may[-1]}")


def together(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    change: str = "steer",
    choose: str = "majority",
    n: int = 8,
    alpha: float | None = None,
    layer: int | None = None,
) -> list[Decoded]:
    def chosen(by: Engine) -> list[Decoded]:
        if choose == "greedy":
            return greedy(by, asks, None)
        if choose == "majority":
            return majority(by, asks, None, k=n)
        return best_of_n(by, asks, None, n=n) if choose == "best_of_n" else tournament(by, asks, None, n=n)

    if change == "model_surgery":
        with engine.changed(fitted.weights):
            return chosen(engine)
    vector = (1.0 if alpha is None else alpha) * engine.fitting(fitted.vector)

    def steered(prompt: np.ndarray) -> AddVector:
        return AddVector(vector=vector, layer=fitted.layer, start=len(prompt) - 1)

    return chosen(replace(engine, steered=steered))


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    change: str = "steer",
    choose: str = "majority",
    n: int = 8,
    alpha: float | None = None,
    layer: int | None = None,
) -> Any:
    """What `change` learns from the pairs. Raises ValueError for two decoders that do not go together, and as `change` does."""
    _allowed(change, choose)
    learn = steer.fit if change == "steer" else model_surgery.fit
    return learn(engine, pairs, **_knobs(alpha, layer))
