"""The card beside exported weights, for their users: README.md with the front matter that the Hub reads, and
the licence. It claims only what the project's own files say."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tasks.core.errors import UserError
from tasks.export.parity import Parity
from tasks.pages import cards
from tasks.core.paths import CODE
from tasks.runtime.models import MODELS

DATA = {  # model -> the stages whose rows it was trained on
    "base": ("demonstrations",),
    "sft": ("demonstrations",),
    "prefer": ("demonstrations", "clean"),
    "rl": ("demonstrations", "questions", "problems"),
    "reward": ("demonstrations", "clean"),
}
_FRONT = re.compile(r"\A---\n(.*?)\n---", re.DOTALL)


def license(source: Path | str, named: str) -> str:
    """The licence of an export: the one that was named, or the one that the model's own card names. Raises UserError if
    there is none."""
    readme = Path(source) / "README.md"
    front = _FRONT.match(readme.read_text(encoding="utf-8")) if readme.exists() else None
    own = (yaml.safe_load(front[1]) or {}).get("license", "") if front else ""
    if not (named or own):
        raise UserError(
            "name the licence of the model with --license, e.g. apache-2.0 (it is bound by that of the model it started from, and by "
            "that of the data it learned from)"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", name := str(named or own).lower()):
        raise UserError(
            f"--license {name!r} is not the name of a licence: write it as the Hub does, e.g. apache-2.0, mit or other"
        )
    return name


def write(root: Path, model: str, name: str, out: Path, readers: Sequence[Parity], licensed: str, *, kind: str) -> None:
    """Writes README.md and, if its text is available, LICENSE. kind: "model", "word" (a reward model that gives a word)
    or "reward" (one with a head)."""
    own = model in (*MODELS, "reward")
    facts = {
        "license": licensed,
        "kind": kind,
        "stage": MODELS[model][0] if model in MODELS else "reward" if own else "",
        "card": _json(root / "artifacts" / (MODELS[model][0] if model in MODELS else "reward") / "card.json")
        if own
        else {},
        "results": (_json(root / "reports" / "summary.json").get("models") or {}).get(model, {}) if own else {},
        "datasets": [
            [s, *(str(c.get(k, "")) for k in ("produced", "accepted")), _digest(c)]
            for s in (DATA[model] if own else ())
            if (c := _json(root / "artifacts" / s / "card.json"))
        ],
        "base": "" if own else model if "/" in model and not Path(model).is_dir() else "",
        "parity": [p.sentence() for p in readers],
        "head": _json(out / "head.json"),
    }
    (out / "README.md").write_text(cards.hub_card(name, facts), encoding="utf-8")
    text = next((p for p in (Path(model) / "LICENSE", CODE / "LICENSE") if p.is_file()), None)
    if text is not None and (text.parent != CODE or licensed == "apache-2.0"):
        shutil.copyfile(text, out / "LICENSE")


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _digest(card: dict[str, Any]) -> str:
    return next((str(v)[:12] for k, v in sorted(card.items()) if "digest" in k and isinstance(v, str)), "")
