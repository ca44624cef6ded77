"""`espalier export`: a model of this project, a folder or a Hub id, written for other programs and checked by reading it
back. If the check fails, nothing is left behind; nothing is ever sent anywhere. docs/export.md"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError, nearest
from tasks.export import card, folder, gguf, parity, reward
from tasks.runtime.models import MODELS, model_path
from tasks.runtime.stage import REMEDY
from tasks.storage import commit
from training.model.model import load_model

TARGETS = ("hub", "adapter", "gguf", "vllm")
RECORD = "parity.json"
BASES = {"sft": "base", "prefer": "sft", "rl": "sft"}  # model of a project -> the base of its adapters


@dataclass(frozen=True, kw_only=True)
class Settings:
    """quants: of a GGUF, one file each; prompts: asked of model and reader; license: of the card (a SPDX name, e.g.
    apache-2.0); name: of the files and the card; base: the base model of an adapter"""

    quants: Sequence[str] = ("f32",)
    prompts: int = 200
    license: str = ""
    name: str = ""
    base: str = ""


def export(
    root: Path, model: str, to: str, out: Path, settings: Settings, *, say: Callable[[str], None] = print
) -> list[parity.Parity]:
    """Write `out`, which must not exist, and check it; returns how each reader compares. Raises UserError."""
    if to not in TARGETS:
        raise UserError(f"there is no target {to!r}: {nearest(to, TARGETS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already: name a folder that is not, or remove it")
    if settings.prompts < 1:
        raise UserError(f"--prompts is {settings.prompts}: it takes one prompt or more to compare two models")
    source = _source(root, model)
    name = settings.name or f"espalier-{model}" if model in (*MODELS, "reward") else settings.name or Path(model).name
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        readers = _write(root, model, to, source, part, name, settings, say)
        record = {"model": name, "to": to, "readers": [p.record() for p in readers]}
        (part / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        if out.exists():
            out.rmdir()
        part.rename(out)
    except UserError as e:
        raise UserError(str(e).replace(str(part), str(out))) from e
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return readers


def _source(root: Path, model: str) -> Path | str:
    if model != "reward":
        return model_path(root, model)
    path = root / "artifacts" / "reward" / "model"
    if not path.is_dir():
        raise UserError(f"{path} does not exist: train it with `dvc repro reward`, or name a folder with a model")
    commit.check(root / "artifacts" / "reward", "model", remedy=REMEDY)
    return path


def _write(
    root: Path,
    model: str,
    to: str,
    source: Path | str,
    part: Path,
    name: str,
    settings: Settings,
    say: Callable[[str], None],
) -> list[parity.Parity]:
    texts = parity.questions(root, settings.prompts)
    licensed = card.license(source, settings.license) if to == "hub" else ""
    if reward.is_one(source):
        readers = reward.export(source, to, part, texts)
        if to == "hub":
            card.write(root, model, name, part, readers, licensed, kind="reward")
        return readers
    network: Any
    try:
        network, tokenizer = load_model(source)
    except (ValueError, OSError) as e:
        raise UserError(f"the model {model} could not be loaded: {str(e).strip().splitlines()[0]}") from e
    reference = parity.ask(network, tokenizer, texts)
    say(f"asked {len(reference.prompts)} prompts; reading back what is written ...")
    if to == "gguf":
        part.mkdir()
        readers = []
        for quant in dict.fromkeys(q.lower() for q in settings.quants):
            file = part / f"{name}-{quant.upper()}.gguf"
            readers += gguf.export(network, tokenizer, reference, file, quant)
            say(f"{file.name}: {readers[-1].sentence()}")
        return readers
    if to == "adapter":
        base = settings.base or (_source(root, BASES[model]) if model in BASES else "")
        if not base:
            raise UserError(f"name what the adapter of {model} was trained on with --base: a folder, or a Hub id")
        return folder.adapter(source, network, reference, base, part)
    folder.write(source, network, tokenizer, part)
    readers = folder.check(network, tokenizer, reference, part)
    if to == "hub":
        card.write(root, model, name, part, readers, licensed, kind="word" if model == "reward" else "model")
    elif (engine := folder.by_vllm(reference, part, int(network.config.max_position_embeddings))) is not None:
        parity.exact(engine, part)
        readers.append(engine)
    else:
        say("vLLM is not installed here, so transformers alone has read the folder")
    return readers


def metadata(out: Path) -> dict[str, Any]:
    """The record of an export."""
    return json.loads((out / RECORD).read_text(encoding="utf-8"))
