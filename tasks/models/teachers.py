"""The teachers of the knob `rl.teacher`: models, and endpoints that return the most likely tokens.

    set:
      rl:
        teacher:
        - {model: models/math, weights: {linear_equations: 1.0, "": 0.0}}
        - {model: models/other-family, weights: {linear_equations: 0.0}}
        - {url: "http://127.0.0.1:8000/v1", model: Qwen/Qwen3-32B, top_k: 20}

Keys: model (a folder or Hub name; behind an endpoint its name there), weights (family of the problem -> weight; "" for
all others; default 1), url (up to /v1, of vLLM, with the policy's tokenizer), top_k (20). A plain name means {model:
NAME}. A model with another tokenizer than the policy is compared by spans of text. The key of an endpoint is read from
the environment variable ESPALIER_API_KEY; its replies are kept in .espalier/teacher.sqlite.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from tasks.core.errors import UserError, nearest
from tasks.runtime.models import named_by_user
from tasks.runtime.stage import Stage
from training.model.model import load_model
from training.model.render import Renderer
from training.rl.teachers import Teacher, Teachers
from training.rollout.endpoint import Endpoint

KEYS = ("model", "weights", "url", "top_k")


def configured(given: Any, where: str = "rl.teacher") -> list[dict[str, Any]]:
    """The checked specs of a knob. Raises UserError for an invalid one."""
    listed = given if isinstance(given, list) else [given]
    out = []
    for i, one in enumerate(listed):
        at = f"{where}[{i}]" if isinstance(given, list) else where
        spec = {"model": one} if isinstance(one, str) else one
        if not isinstance(spec, Mapping):
            raise UserError(f"{at} is {one!r}: name a model, or write {{model: NAME, weights: {{FAMILY: 1.0}}}}")
        for key in spec:
            if key not in KEYS:
                raise UserError(f"{at}: unknown key {key!r}: {nearest(str(key), KEYS)}")
        if not isinstance(spec.get("model"), str) or not spec["model"]:
            raise UserError(f"{at}: model is missing: name a model folder, a Hub name, or what the endpoint calls it")
        if "top_k" in spec and "url" not in spec:
            raise UserError(f"{at}: top_k is read of an endpoint: add its url, or remove top_k (a model is read whole)")
        k = spec.get("top_k", 20)
        if type(k) is not int or k < 1:
            raise UserError(f"{at}: top_k is {k!r}: it is how many tokens the endpoint tells of each place, 1 or more")
        weights = spec.get("weights", {})
        good = isinstance(weights, Mapping) and all(
            isinstance(f, str) and type(w) in (int, float) and 0 <= w < float("inf") for f, w in weights.items()
        )
        if not good:
            raise UserError(f'{at}: weights is {weights!r}: write {{FAMILY: 1.0, "": 0.0}}, with numbers of 0 or more')
        out.append({"weights": {}, "url": "", "top_k": 20, **spec})
    return out


def teachers(stage: Stage, given: Any, tokenizer: Any, dtype: str, device: str, temperature: float) -> Teachers:
    """Raises UserError for an invalid spec, and for an endpoint when the sampling temperature is not 1."""
    each = []
    for spec in configured(given):
        if spec["url"]:
            if temperature != 1:
                raise UserError(
                    f"rl.teacher: an endpoint tells log-probs at temperature 1, and sampling.temperature is {temperature}: "
                    "set it to 1.0, or name the teacher's folder"
                )
            endpoint = Endpoint(
                url=spec["url"],
                model=spec["model"],
                cache=stage.root / ".espalier/teacher.sqlite",
                key=os.environ.get("ESPALIER_API_KEY", ""),
            )
            each.append(Teacher(top_k=partial(endpoint.top_logprobs, k=spec["top_k"]), weights=spec["weights"]))
            continue
        model, theirs = load_model(named_by_user(stage, spec["model"]), dtype=dtype, device=device)
        own = theirs.get_vocab() == tokenizer.get_vocab()
        each.append(Teacher(model=model, renderer=None if own else Renderer(theirs), weights=spec["weights"]))
    return Teachers(each=tuple(each), temperature=temperature)
