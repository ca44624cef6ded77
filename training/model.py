"""Models and tokenizers: made from nothing (profile cpu) or loaded from a Hub name or folder (profile gpu), in Hugging Face layout.

Weights are safetensors, never pickles. A saved folder holds config, weights, tokenizer and chat template, and loads with
`AutoModelForCausalLM.from_pretrained` and in vLLM.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging

from training.attention import NAME, CachedRows, PackedRows

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
        [pre_tokenizers.Split(Regex(r"\d| ?\p{L}+| ?[^\s\p{L}\d]+|\s+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tok.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", END]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TAGS), special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tok.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, eos_token=END, pad_token="<|endoftext|>", clean_up_tokenization_spaces=False)
    fast.add_tokens(TAGS)  # one token each, yet plain text: they survive decoding
    fast.chat_template = CHAT_TEMPLATE
    return fast


def new_model(
    tokenizer: PreTrainedTokenizerBase, *, hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int, max_length: int, init_range: float, seed: int
) -> nn.Module:
    """A from-scratch Qwen3-architecture model with a tied head, fp32."""
    from transformers import Qwen3Config

    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // 16) * 16, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=hidden // heads, intermediate_size=intermediate, max_position_embeddings=max_length,
        tie_word_embeddings=True, initializer_range=init_range, rope_theta=10_000.0, attention_dropout=0.0,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None, use_cache=False,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.set_attn_implementation(NAME)
    return model


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder or Hub name. Raises ValueError with a remedy where there is none, or no chat template."""
    folder = Path(path)
    if folder.is_dir() and not any((folder / f).exists() for f in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")):
        raise ValueError(f"the model folder {folder} has no tokenizer (no tokenizer.json): copy the tokenizer files of the model it was trained from into it")
    tokenizer = AutoTokenizer.from_pretrained(str(path))
    if not tokenizer.chat_template:
        raise ValueError(f"the tokenizer of {path} has no chat template: use an instruct model, or put a chat_template.jinja beside tokenizer.json")
    return tokenizer


def load_model(path: str | Path, *, dtype: str = "float32", device: str = "cpu") -> tuple[nn.Module, PreTrainedTokenizerBase]:
    """A causal LM with our attention, and its tokenizer, from a folder or a Hub name. safetensors only."""
    folder = Path(path)
    if not folder.is_dir() and (str(path).startswith((".", "/")) or str(path).count("/") > 1):
        raise ValueError(f"there is no model folder {folder}: name a folder in Hugging Face layout, or a Hub id such as Qwen/Qwen3-0.6B")
    if folder.is_dir():  # nothing is downloaded: no progress is worth a bar
        logging.disable_progress_bar()
    tokenizer = load_tokenizer(path)
    model = AutoModelForCausalLM.from_pretrained(str(path), dtype=getattr(torch, dtype), attn_implementation=NAME, use_safetensors=True)
    return model.to(device), tokenizer


def save_model(model: nn.Module, tokenizer: PreTrainedTokenizerBase, path: str | Path) -> None:
    """Write model and tokenizer as one folder, whole or not at all (written beside, then renamed)."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    model.save_pretrained(part, safe_serialization=True)
    tokenizer.save_pretrained(part)
    config = json.loads((part / "config.json").read_text())
    for key in ("_attn_implementation", "attn_implementation"):  # our attention is a way to run it, not part of the model
        config.pop(key, None)
    (part / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    shutil.rmtree(path, ignore_errors=True)
    os.replace(part, path)


def n_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def head_weight(model: nn.Module) -> Tensor:
    """[V, d] weight of the output head (the embedding where tied)."""
    return model.get_output_embeddings().weight


def hidden_states(model: nn.Module, ids: Tensor, position: Tensor, rows: PackedRows | CachedRows) -> Tensor:
    """Last hidden states: ids, position [T] or [B, n] -> [T, d] or [B, n, d]. The head is not applied."""
    flat = ids.dim() == 1
    if flat:
        ids, position = ids[None], position[None]
    out = model.base_model(input_ids=ids, position_ids=position, rows=rows, use_cache=False).last_hidden_state
    return out[0] if flat else out


