"""How large a model is, read from its files before any of its weights are: for estimates of memory and time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from training.model.gguf_header import gguf_of, read_header

CHUNK = 1 << 25  # float32 logits that a CPU holds at once (training/lm_head/logprob.py)
BLOCK = 64  # weights of a quantised base that share a float32 scale
NF4 = 0.5 + 4 / BLOCK  # bytes of one of them
PROCESS = 0.9e9  # bytes of python, torch and transformers themselves


@dataclass(frozen=True, kw_only=True)
class Size:
    """parameters of the whole model, its embedding and head among them; `matrix` of one layer: the sum of rows and columns
    of its weight matrices, which is what a rank of LoRA costs."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @property
    def matrix(self) -> int:
        h, q, kv, i = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.intermediate
        return 2 * (h + q) + 2 * (h + kv) + 3 * (h + i)

    @property
    def linear(self) -> int:
        """Numbers in the weight matrices of the layers, which are what a base of four bits quantises."""
        h, q, kv, i = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.intermediate
        return self.layers * (2 * h * q + 2 * h * kv + 3 * h * i)

    def training(
        self, tokens: int, *, bytes_each: int = 4, lora: int = 0, base: str = "", checkpointing: bool = False
    ) -> float:
        """Bytes that a step over `tokens` tokens at once takes: weights, gradients, AdamW's two moments, float32 copies of
        half-precision weights, activations, logits. lora: its rank; 0 trains all weights. base: nf4 where what adapters
        are trained on is quantised."""
        trained = lora * self.matrix * self.layers if lora else self.parameters
        masters = 4 if bytes_each < 4 else 0
        # numbers of a token and layer that the backward pass needs
        kept = 6 * self.hidden + 3 * self.kv_heads * self.head_dim + 4 * self.intermediate
        if lora:  # each adapted layer keeps what it said without and what its adapter adds
            kept += 3 * self.hidden + 2 * self.kv_heads * self.head_dim + 2 * self.intermediate
        layer = kept if not checkpointing else self.hidden + kept / self.layers
        logits = 3 * 4 * min(CHUNK, tokens * self.vocabulary)
        if base:  # adapters are float32; the largest matrix is unpacked for its product
            held = (self.parameters - self.linear) * bytes_each + self.linear * NF4 + trained * 4
            state = held + trained * 12 + self.hidden * self.intermediate * bytes_each
        else:
            state = self.parameters * bytes_each + trained * (12 + masters)
        return PROCESS + state + tokens * self.layers * layer * bytes_each + logits

    def loading(self, bytes_each: int = 4) -> float:
        """Bytes of the machine's memory while the weights are loaded, before they are quantised."""
        return PROCESS + self.parameters * bytes_each

    def cache(self, conversations: int, tokens: int, bytes_each: int = 4) -> float:
        """Bytes of the keys and values of conversations that are sampled at once."""
        return 2 * conversations * tokens * self.layers * self.kv_heads * self.head_dim * bytes_each

    def work(self, tokens: int) -> float:
        """Operations of a forward pass over tokens; a step over them takes three times as many."""
        return 2.0 * self.parameters * tokens


def size_of(path: str | Path) -> Size | None:
    """The size of a model in a folder or GGUF file; None for what is not on this disk, or says too little."""
    place = Path(path).expanduser()
    file = gguf_of(place)
    try:
        if file is not None:
            return _gguf(file)
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        return _folder(config, weights_of(place))
    except (OSError, ValueError, LookupError, TypeError, ImportError, ZeroDivisionError):
        return None  # what is wrong with it is said where it is loaded


def weights_of(folder: Path) -> int:
    """Numbers in the safetensors files of a folder, by their headers."""
    total = 0
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as f:
            head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        total += sum(prod(v["shape"]) for k, v in head.items() if k != "__metadata__")
    return total


def _folder(config: Mapping[str, Any], parameters: int) -> Size:
    heads = config["num_attention_heads"]
    return Size(
        parameters=parameters,
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocabulary=config["vocab_size"],
    )


def _gguf(file: Path) -> Size:
    header = read_header(file)
    heads, hidden = (int(header.own(k)) for k in ("attention.head_count", "embedding_length"))
    return Size(
        parameters=sum(prod(s) for s in header.shapes.values()),
        layers=int(header.own("block_count")),
        hidden=hidden,
        intermediate=int(header.own("feed_forward_length")),
        heads=heads,
        kv_heads=int(header.own("attention.head_count_kv")),
        head_dim=int(header.own("attention.key_length", hidden // heads)),
        vocabulary=max(header.shapes["token_embd.weight"]),
    )
