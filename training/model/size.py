"""The size of a model, read from its files without loading weights: for estimates of memory and time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from training.model.gguf_header import gguf_of, read_header

# how many float32 logits are alive at once, on a CPU and on a GPU (training/lm_head/logprob.py)
CPU_LOGITS, GPU_LOGITS = 1 << 25, 1 << 28
BLOCK = 64  # how many weights of a quantised base share a float32 scale
NF4 = 0.5 + 4 / BLOCK  # bytes of one such weight
PROCESS = 0.9e9  # bytes of python, torch and transformers themselves, or of a device's context and its buffers


@dataclass(frozen=True, kw_only=True)
class Size:
    """parameters of the whole model, its embedding and head among them; `matrix` of one layer: the sum of rows and
    columns of its weight matrices, which is the cost of one rank of LoRA. head_norms: whether queries and keys are
    normed (Qwen3); tied: whether the head is the embedding. For a mixture of experts it is the size of a dense model
    with as many parameters."""

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    head_norms: bool = False
    tied: bool = True

    @property
    def matrix(self) -> int:
        h, q, kv, i = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.intermediate
        return 2 * (h + q) + 2 * (h + kv) + 3 * (h + i)

    @property
    def linear(self) -> int:
        """Numbers in the weight matrices of the layers, which a four-bit base quantises."""
        h, q, kv, i = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.intermediate
        return self.layers * (2 * h * q + 2 * h * kv + 3 * h * i)

    @property
    def root(self) -> int:
        """Numbers outside of the layers: the embedding, the head, the last norm."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def layer(self) -> float:
        """Numbers of one layer."""
        return max(0, self.parameters - self.root) / self.layers

    def kept(self, bytes_each: int = 4, lora: int = 0, base: str = "") -> float:
        """Bytes that a layer keeps per token for its backward pass, if torch runs the model's own layers: counted
        tensor by tensor, except two numbers per norm and one per head. Norms keep their input in float32; attention
        keeps its queries, keys, values and result; the feed-forward half keeps its gate before and after the
        activation, the other factor, and the product. With frozen weights no norm keeps its result. Adapters of a
        quantised base read float32, so each keeps a copy of its half-precision input."""
        h, q, kv, i = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.intermediate
        b, normed = bytes_each, self.head_norms * (q + kv)
        norms = 4 * (2 * h + normed)
        if not lora:
            return norms + b * (4 * h + normed + 3 * q + 2 * kv + 4 * i)
        down = 7 * lora  # the low-rank intermediate of a token in each of seven adapters
        if base and b < 4:
            return norms + b * (2 * q + 2 * kv + 3 * i) + 4 * (5 * h + q + i + down)
        return norms + b * (2 * h + 3 * q + 2 * kv + 4 * i + down)

    def parts(
        self,
        tokens: int,
        *,
        bytes_each: int = 4,
        lora: int = 0,
        base: str = "",
        checkpointing: bool = False,
        shards: int = 1,
        gpu: bool = False,
    ) -> dict[str, float]:
        """Part -> an upper bound of its bytes in the process that takes the most, during a step over `tokens` tokens at
        once. lora: its rank; 0 trains all weights. base: nf4 if the base of the adapters is quantised. shards: among
        how many processes weights, gradients and the optimizer's state are split. gpu: whether logits are computed with
        the larger limits of a GPU."""
        b = bytes_each
        trained = lora * self.matrix * self.layers if lora else self.parameters
        frozen = self.parameters if lora else 0
        limit = GPU_LOGITS if gpu else CPU_LOGITS
        logits = min(limit, tokens * self.vocabulary)
        out = {"process": PROCESS}
        if base:  # adapters are float32; the largest matrix must be unpacked for its product
            out["weights"] = (self.parameters - self.linear) * b + self.linear * NF4 + trained * 4
            out["gathered"] = self.hidden * self.intermediate * b
            out["gradients"], out["optimizer"] = trained * 4, trained * 8
        elif (
            shards > 1
        ):  # float32 shares. Gathered: the root for the whole pass, two layers, and gradients until they are summed
            learned = trained / self.layers if lora else self.layer
            top = 0 if lora else self.vocabulary * self.hidden
            out["weights"] = 4 * (trained + frozen) / shards
            out["gradients"], out["optimizer"] = 4 * trained / shards, 8 * trained / shards
            out["gathered"] = b * (self.root + 2 * self.layer + top) + (b + 4) * learned
            out["whole model of the first process"] = b * (trained + frozen)
        else:
            out["weights"] = b * (trained * bool(lora) + self.parameters)
            out["gradients"] = (4 if b == 4 else b + 4) * trained  # gradients of a micro-batch, and their float32 sum
            out["optimizer"] = 8 * trained + (4 * trained if b < 4 else 0)  # two moments, and float32 copies of weights
        passing = b * (3 * self.intermediate + 2 * self.hidden)  # gradients on their way through a layer
        once = self.kept(b, lora, base)
        each = b * self.hidden * self.layers + once if checkpointing else once * self.layers
        out["activations"] = tokens * (each + passing)
        out["head"] = logits * ((4 + b % 4) if gpu else 12)
        if tokens and not lora:
            top = self.vocabulary * self.hidden
            if shards > 1:  # the root's gradient is summed when activations are gone
                out["head"] = max(out["head"], 4 * self.root + b * (self.root - top) - out["activations"])
            elif b < 4:  # its gradient is float32 until it is complete
                out["head"] += 4 * top
        return out

    def training(self, tokens: int, **how: Any) -> float:
        """Bytes that a step over `tokens` tokens at once takes: the sum of `parts`."""
        return sum(self.parts(tokens, **how).values())

    def loading(self, bytes_each: int = 4) -> float:
        """Bytes while the weights are loaded, before they are quantised (in the machine's memory) or split."""
        return PROCESS + self.parameters * bytes_each

    def cache(self, conversations: int, tokens: int, bytes_each: int = 4) -> float:
        """Bytes of the keys and values of conversations that are sampled at once."""
        return 2 * conversations * tokens * self.layers * self.kv_heads * self.head_dim * bytes_each

    def work(self, tokens: int) -> float:
        """Operations of a forward pass over tokens; a step over them takes three times as many."""
        return 2.0 * self.parameters * tokens


def size_of(path: str | Path) -> Size | None:
    """The size of a model in a folder or GGUF file; None if it is not on this disk, or its files say too little."""
    place = Path(path).expanduser()
    file = gguf_of(place)
    try:
        if file is not None:
            return _gguf(file)
        config = json.loads((place / "config.json").read_text(encoding="utf-8"))
        return _folder(config, shapes_of(place))
    except (OSError, ValueError, LookupError, TypeError, ImportError, ZeroDivisionError):
        return None  # loading will say what is wrong with it


def size_by_config(path: str | Path) -> Size:
    """The size of a model whose weights are not here, from a config.json, a folder with one, or a Hub name, of which
    only the configuration is downloaded. transformers builds the model without memory for its weights, and they are
    counted. Raises ValueError with a remedy if there is no such model, or it is not a language model."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from training.model import remote_code

    place = Path(path).expanduser()
    name = str(place if place.exists() else path)
    trusted = remote_code.allowed(name)
    if not place.exists() and (str(path).startswith((".", "/", "~")) or str(path).count("/") != 1):
        raise ValueError(
            f"there is no model {path}: name a folder, a config.json, a GGUF file, or a Hub id such as Qwen/Qwen3-8B"
        )
    try:
        given: Any = AutoConfig.from_pretrained(name, trust_remote_code=trusted)
        config = given.get_text_config()
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=trusted)
        shapes = {n: tuple(p.shape) for n, p in model.named_parameters()}
        return _folder(config.to_dict(), shapes)
    except (OSError, ValueError, LookupError, TypeError) as e:
        if "trust_remote_code" in str(e):
            raise ValueError(remote_code.refusal(path)) from None
        message = str(e).strip().partition("\n")[0]
        remedy = (
            "it must be the configuration of a language model that transformers has"
            if place.exists()
            else "is it spelled right, and is the network there? A folder that holds a config.json can be named instead"
        )
        raise ValueError(f"cannot read how large {path} is ({message}): {remedy}") from e


def shapes_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors in the safetensors files of a folder, by their headers."""
    out: dict[str, tuple[int, ...]] = {}
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as f:
            head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        out |= {k: tuple(v["shape"]) for k, v in head.items() if k != "__metadata__"}
    return out


def weights_of(folder: Path) -> int:
    """Numbers in the safetensors files of a folder, by their headers."""
    return sum(map(prod, shapes_of(folder).values()))


def _folder(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Size:
    if not shapes:
        raise ValueError("no weights are here")
    heads = config["num_attention_heads"]
    return Size(
        parameters=sum(map(prod, shapes.values())),
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocabulary=config["vocab_size"],
        head_norms=any("q_norm" in name for name in shapes),
        tied="lm_head.weight" not in shapes,
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
        head_norms=any("q_norm" in name for name in header.shapes),
        tied="output.weight" not in header.shapes,
    )
