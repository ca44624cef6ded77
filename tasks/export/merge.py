"""`espalier merge`: one model folder of several."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError, nearest
from tasks.evaluation.merging import merged
from tasks.planning.pieces import bind, find
from tasks.runtime.models import model_path
from training.model.model import save_model

RECORD = "merge.json"  # file beside the weights: what they were merged from


def merge(
    root: Path,
    method: str,
    base: str,
    models: Sequence[str],
    out: Path,
    *,
    knobs: Mapping[str, Any],
    texts: Path | None = None,
    seed: int = 0,
) -> None:
    """Write the merged model to `out`, which must not exist. Raises UserError."""
    if out.exists():
        raise UserError(f"{out} is there already: name a folder that is not, or remove it")
    known = [p.name for p in inspect.signature(find("merge", method)).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in knobs:
        if name not in known:
            raise UserError(f"merge: {method} has no knob {name!r}: {nearest(name, known)}")
    if texts is not None and not texts.is_file():
        raise UserError(f"--texts {texts} does not exist: name a file with a prompt per line")
    lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()] if texts else []
    piece = bind("merge", {"piece": method, **knobs})
    places = [(name, model_path(root, name)) for name in (base, *models)]
    try:
        network, tokenizer = merged(piece, places[0], places[1:], texts=lines, seed=seed)
    except (ValueError, OSError) as e:
        raise UserError(str(e).strip().splitlines()[0]) from e
    save_model(network, tokenizer, out)
    record = {"method": method, "base": base, "models": list(models), "knobs": dict(knobs), "seed": seed}
    (out / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
