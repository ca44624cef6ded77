"""Exports reward models as transformers' `AutoModelForSequenceClassification` with the trained head."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from synth.types import Message
from tasks.core.errors import UserError
from tasks.export import folder, parity
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model.attention import NAME
from training.model.model import no_bars
from training.model.render import Renderer
from training.preference.reward_model import head_stats

NEAR = 1e-4  # of the outputs' own size


def is_one(source: Path | str) -> bool:
    """Whether a folder holds a model with a head of numbers. (A reward model without one is a causal LM.)"""
    config = Path(source) / "config.json"
    kinds = json.loads(config.read_text(encoding="utf-8")).get("architectures") or [""] if config.exists() else [""]
    return kinds[0].endswith("ForSequenceClassification")


def export(source: Path | str, to: str, out: Path, texts: Sequence[str]) -> list[parity.Parity]:
    """Write the folder and compare the outputs of every row. Raises UserError for targets that have no such model."""
    if to not in ("hub", "vllm"):
        raise UserError(
            f"a reward model with a head is written --to hub or --to vllm: {to} holds language models alone"
        )
    if (Path(source) / "head.safetensors").exists():
        raise UserError(
            f"the head of {source} has weights beside the model's (head.safetensors), which no other program reads: train one with "
            "`reward.head: scalar` to export it"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(source))
        model = _load(source)
    except (OSError, ValueError) as e:
        raise UserError(f"the reward model {source} could not be loaded: {str(e).strip().splitlines()[0]}") from e
    renderer = Renderer(tokenizer)
    rows = [renderer.demonstration(_conversation(i, t))[0] for i, t in enumerate(texts)]
    config: Any = model.config
    room = int(config.max_position_embeddings)
    rows = [r for r in rows if len(r) <= room]
    folder.write(source, model, tokenizer, out)
    return [check(model, rows, out)]


def check(model: Any, rows: Sequence[np.ndarray], out: Path) -> parity.Parity:
    """How the outputs of the folder compare with the model's, over conversations. Raises UserError if they differ."""
    batch = pack([Row(ids=r, trainable=np.arange(len(r)) == len(r) - 1, group=0) for r in rows])
    model.set_attn_implementation(NAME)
    with torch.no_grad():
        ours = score(model, batch, tokens_per_microbatch=4096, read=head_stats).extras["outputs"].float()
    reader = _load(out)
    tokenizer = AutoTokenizer.from_pretrained(str(out))
    if tokenizer.pad_token_id is None or reader.config.pad_token_id != tokenizer.pad_token_id:
        raise UserError(
            f"{out} pads with {reader.config.pad_token_id} and its tokenizer with {tokenizer.pad_token_id}: rewards of padded rows "
            "would be read at another token; name the tokenizer's pad_token_id in config.json"
        )
    theirs: list[torch.Tensor] = []
    with torch.no_grad():
        for row in rows:
            ids = torch.full((1, len(row) + 3), tokenizer.pad_token_id)
            ids[0, : len(row)] = torch.from_numpy(row)
            mask = (torch.arange(len(row) + 3) < len(row))[None].long()
            theirs.append(reader(input_ids=ids, attention_mask=mask).logits[0])
    far = (torch.stack(theirs) - ours).abs().amax(-1)
    wrong = int((far > NEAR * ours.abs().mean().clamp_min(1e-3)).sum())
    if wrong:
        raise UserError(
            f"{out} gives other rewards than the model to {wrong} of {len(rows)} conversations (by {float(far.max()):.3g}): is "
            "score.weight in its safetensors the one that was trained? Nothing was exported"
        )
    name = f"AutoModelForSequenceClassification of transformers {version('transformers')}"
    return parity.Parity(reader=name, prompts=len(rows), tokens=len(rows), differ=0, top1=1.0)


def _load(source: Path | str) -> Any:
    """Raises ValueError if the folder lacks weights: transformers would initialise a random head and only log a
    warning."""
    with no_bars():
        model, about = AutoModelForSequenceClassification.from_pretrained(
            str(source), dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
    if missing := sorted(about["missing_keys"]):
        raise ValueError(f"its weights lack {missing[0]}, which would be made up")
    return model.eval()


def _conversation(i: int, text: str) -> list[Message]:
    return [Message(role="user", content=text), Message(role="assistant", content=f"<answer>{i}</answer>")]
