"""Models and tokenizers: made from nothing (profile cpu) or loaded from a Hub name or folder (profile gpu), in Hugging
Face layout.

Weights are safetensors, never pickles. A saved folder holds config, weights, tokenizer and chat template, and loads
with `AutoModelForCausalLM.from_pretrained` and in vLLM.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging

from training.model.attention import NAME, CachedRows, PackedRows, SharedRows, own_forward
from training.model.lora import ADAPTER, folded, save_adapters
from training.model.native import layers as native

END = "<|im_end|>"
TAGS = ["<search>", "</search>", "<answer>", "</answer>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = 1024) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with ChatML special tokens; any text round-trips, digits are split one by one."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d| ?\p{L}+| ?[^\s\p{L}\d]+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", END]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TAGS),
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tok, eos_token=END, pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    fast.add_tokens(TAGS)  # one token each, yet plain text: they survive decoding
    fast.chat_template = CHAT_TEMPLATE
    return fast


def new_model(
    tokenizer: PreTrainedTokenizerBase,
    *,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    max_length: int,
    init_range: float,
    seed: int,
) -> nn.Module:
    """A from-scratch Qwen3-architecture model with a tied head, fp32; its vocabulary is the tokenizer's, rounded up to
    a multiple of 16."""
    from transformers import Qwen3Config

    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // 16) * 16,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=hidden // heads,
        intermediate_size=intermediate,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        initializer_range=init_range,
        rope_theta=10_000.0,
        attention_dropout=0.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.set_attn_implementation(NAME)
    return model


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder or Hub name. Raises ValueError with a remedy where there is none, or no chat
    template."""
    folder = Path(path)
    if folder.is_dir() and not any(
        (folder / f).exists() for f in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")
    ):
        raise ValueError(
            f"the model folder {folder} has no tokenizer (no tokenizer.json): copy the tokenizer files of the model it comes from into it"
        )
    with _loading(path):
        tokenizer = AutoTokenizer.from_pretrained(str(path))
    if not tokenizer.chat_template:
        raise ValueError(
            f"the tokenizer of {path} has no chat template: use an instruct model, or put a chat_template.jinja beside tokenizer.json"
        )
    return tokenizer


def load_model(
    path: str | Path, *, dtype: str = "float32", device: str = "cpu"
) -> tuple[nn.Module, PreTrainedTokenizerBase]:
    """A causal LM with our attention, and its tokenizer, from a folder or a Hub name. safetensors only.

    Raises ValueError with a remedy for a folder that is not there or incomplete, for a name that cannot be fetched, and
    for an architecture that our attention or our log-probs would get wrong.
    """
    folder = Path(path)
    if not folder.is_dir() and (str(path).startswith((".", "/")) or str(path).count("/") > 1):
        raise ValueError(
            f"there is no model folder {folder}: name a folder in Hugging Face layout, or a Hub id such as Qwen/Qwen3-0.6B"
        )
    tokenizer = load_tokenizer(path)
    with _loading(path):
        model = AutoModelForCausalLM.from_pretrained(
            str(path), dtype=getattr(torch, dtype), attn_implementation=NAME, use_safetensors=True
        )
    if len(tokenizer) > len(head_weight(model)):
        raise ValueError(
            f"the tokenizer of {path} knows {len(tokenizer)} ids and its model {len(head_weight(model))}: the rest would have no embedding; take "
            "the tokenizer that the model came with, or make its embedding larger (resize_token_embeddings)"
        )
    model = model.to(device)
    _probe(model, path)
    return model, tokenizer


def save_model(model: nn.Module, tokenizer: PreTrainedTokenizerBase, path: str | Path) -> None:
    """Write model and tokenizer as one folder, whole or not at all (written beside, then renamed); adapters are folded
    into the weights, and lie beside them too where they are to be kept."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    with no_bars():
        model.save_pretrained(part, state_dict=folded(model))
    tokenizer.save_pretrained(part)
    if getattr(model, "keeps_adapters", False):
        save_adapters(model, part / ADAPTER)
    config = part / "tokenizer_config.json"
    kept = {
        k: v
        for k, v in json.loads(config.read_text(encoding="utf-8")).items()
        if k not in ("is_local", "local_files_only")
    }
    config.write_text(
        json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )  # where it came from is no part of it
    shutil.rmtree(path, ignore_errors=True)
    os.replace(part, path)


@contextmanager
def no_bars() -> Iterator[None]:
    """No progress bars of transformers: a file of this disk takes a moment."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _loading(path: str | Path) -> Iterator[None]:
    """What goes wrong while loading as one sentence; bars only where something is downloaded."""
    local = Path(path).is_dir()
    try:
        with no_bars() if local else nullcontext():
            yield
    except OSError as e:  # what transformers and the Hub raise for files that are missing or cannot be fetched
        remedy = (
            "it must hold config.json and model.safetensors (a .bin file is a pickle and is never loaded: convert it)"
            if local
            else "is it spelled right, is the network there, and does a gated model have its HF_TOKEN? A folder can be named instead"
        )
        raise ValueError(f"cannot load {path} ({str(e).strip().splitlines()[0]}): {remedy}") from e


@torch.no_grad()
def _probe(model: nn.Module, path: str | Path) -> None:
    """Raises ValueError unless packed rows do not see each other and logits are hidden states times the head: two short
    rows tell."""
    device = head_weight(model).device
    ids, position = torch.arange(1, 9, device=device), torch.tensor([0, 1, 2, 3, 4, 0, 1, 2], device=device)
    rows = PackedRows([5, 3], device)
    try:
        hidden = hidden_states(model, ids, position, rows)
        other = hidden_states(model, torch.cat([ids[:5] + 1, ids[5:]]), position, rows)
        logits = model(input_ids=ids[None], position_ids=position[None], rows=rows, use_cache=False).logits[0]
    except ValueError as e:
        raise ValueError(f"{path} is a {type(model).__name__}, which cannot be trained here: {e}") from e
    if not torch.equal(hidden[5:], other[5:]):
        raise ValueError(
            f"{path} is a {type(model).__name__}, whose layers let packed rows see each other: choose a model that has attention alone"
        )
    if not torch.allclose(logits.float(), (hidden @ head_weight(model).T).float(), atol=1e-2, rtol=1e-2):
        raise ValueError(
            f"{path} is a {type(model).__name__}, whose logits are not hidden states times the head's weight: choose one without "
            "soft-capped, scaled or biased logits"
        )


def n_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def head_weight(model: nn.Module) -> Tensor:
    """[V, d] weight of the output head (the embedding where tied)."""
    return model.get_output_embeddings().weight


def hidden_states(
    model: nn.Module, ids: Tensor, position: Tensor, rows: PackedRows | SharedRows | CachedRows
) -> Tensor:
    """Last hidden states: ids, position [T] (packed) or [B, n] (cached) -> [T, d] or [B, n, d]. The head is not
    applied."""
    flat = ids.dim() == 1
    layers = native.of(model) if flat and not isinstance(rows, CachedRows) else None
    if layers is not None:
        return layers(model, ids, position, rows)
    return own_forward(model, ids, position, rows)


@contextmanager
def checkpointed_layers(model: nn.Module) -> Iterator[None]:
    """Within, a forward pass keeps only what enters each layer; the backward pass makes the rest again: one more
    forward pass for about the memory of one layer (activation checkpointing; Chen et al. 2016, arXiv 1604.06174).
    Values and gradients stay the same to the bit. Raises ValueError for a model without layers to do it by.

    Not transformers' own switch: that one works in training mode alone, and would turn dropout on with it.
    """
    layers = [m for m in model.base_model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"gradient_checkpointing: a {type(model).__name__} has no layers that can be computed again; leave gradient_checkpointing out"
        )
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
