"""Models and tokenizers: made from scratch (profile cpu) or loaded from a Hub name or folder (profile gpu), in Hugging
Face layout.

Weights are safetensors, never pickles. A saved folder holds config, weights, tokenizer and chat template, and loads
with `AutoModelForCausalLM.from_pretrained` and in vLLM.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging
from transformers.utils.hub import cached_file

from training.model import attention, lora, remote_code
from training.model.attention import NAME, CachedRows, PackedRows, SharedRows, own_embedded, own_forward
from training.model.gguf_header import config_of, gguf_of, read_header
from training.model.lora import ADAPTER, base_of, folded, save_adapters, with_adapters
from training.model.native import layers as native
from training.model.vision import KNOWN, Grids, as_read, told_of
from training.model.quantised import n_quantised
from training.model.size import weights_of

END = "<|im_end|>"
# Our attention in the text model alone: the vision tower's sees all patches.
_OURS = {"text_config": NAME, "vision_config": "sdpa"}
TAGS = ["<search>", "</search>", "<answer>", "</answer>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int = 1024, tags: Sequence[str] = TAGS
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with ChatML special tokens, and `tags` as one token each; any text round-trips, digits are
    split one by one."""
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
        vocab_size=vocab_size - len(tags),
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tok, eos_token=END, pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    fast.add_tokens(list(tags))  # one token each, but plain text, so they survive decoding
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

    ids: Any = tokenizer  # typed as if its ids could be texts
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
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attention_dropout=0.0,
        eos_token_id=ids.eos_token_id,
        pad_token_id=ids.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.set_attn_implementation(NAME)
    return model


def new_vision_model(
    tokenizer: PreTrainedTokenizerBase,
    *,
    hidden: int,
    layers: int,
    heads: int,
    intermediate: int,
    max_length: int,
    picture: int,
    patch: int,
    vision_hidden: int,
    vision_layers: int,
    seed: int,
    scale: int = 2,
    init_range: float = 0.02,
) -> nn.Module:
    """A from-scratch vision-language model of the SmolVLM architecture, fp32, for pictures of `picture` x `picture`
    pixels in patches of `patch`; `scale` x `scale` patches become one token (training/types.py). init_range: standard
    deviation of its initial weights."""
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration

    ids: Any = tokenizer
    config = SmolVLMConfig(
        vision_config={
            "hidden_size": vision_hidden,
            "intermediate_size": 2 * vision_hidden,
            "num_hidden_layers": vision_layers,
            "num_attention_heads": max(1, vision_hidden // 32),
            "image_size": picture,
            "patch_size": patch,
            "initializer_range": init_range,
        },
        text_config={
            "model_type": "llama",
            "vocab_size": -(-len(tokenizer) // 16) * 16,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "intermediate_size": intermediate,
            "max_position_embeddings": max_length,
            "initializer_range": init_range,
            "pad_token_id": ids.pad_token_id,
            "eos_token_id": ids.eos_token_id,
            "bos_token_id": None,
        },
        scale_factor=scale,
        image_token_id=ids.pad_token_id,
        pad_token_id=ids.pad_token_id,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model = SmolVLMForConditionalGeneration._from_config(config, dtype=torch.float32, attn_implementation=_OURS)
    return model


def text_config(model: nn.Module) -> Any:
    """The configuration of the layers that read the row: that of the text model of a vision-language model."""
    config: Any = model.config
    return config.get_text_config()


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a model folder, GGUF file or Hub name. Raises ValueError with a remedy if there is no tokenizer,
    or no chat template."""
    folder, file = Path(path), gguf_of(path)
    if (base := base_of(path)) is not None and not (folder / "tokenizer_config.json").exists():
        return load_tokenizer(base)
    if file is not None and find_spec("gguf") is None:
        raise ValueError(
            f"{file} is a GGUF file, and the package that reads it is missing: pip install 'espalier[gguf]'"
        )
    if file is not None:
        read_header(file)  # this says in one sentence what is wrong with half a file
    if (
        file is None
        and folder.is_dir()
        and not any(
            (folder / f).exists() for f in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")
        )
    ):
        raise ValueError(
            f"the model folder {folder} has no tokenizer (no tokenizer.json): copy the tokenizer files of the model it comes from into it"
        )
    with _loading(path):
        tokenizer = AutoTokenizer.from_pretrained(
            *_source(path), **({"gguf_file": file.name} if file else {}), trust_remote_code=remote_code.allowed(path)
        )
        tokenizer.picture_tokens = _picture_tokens(path)  # for `Renderer`
    if not tokenizer.chat_template:
        raise ValueError(
            f"the tokenizer of {path} has no chat template: use an instruct model, or put a chat_template.jinja beside tokenizer.json"
        )
    return tokenizer


def _picture_tokens(path: str | Path) -> int | Grids:
    """How many tokens a picture has for the model of a folder or Hub name; 0 if it reads text alone."""
    config = Path(path) / "config.json"
    if not config.exists() and (gguf_of(path) is not None or Path(path).exists()):
        return 0
    told = (
        json.loads(config.read_text(encoding="utf-8"))
        if config.exists()
        else AutoConfig.from_pretrained(path, trust_remote_code=remote_code.allowed(path)).to_dict()
    )
    processor = {}
    if told.get("vision_config"):
        for name, key in (("processor_config.json", "image_processor"), ("preprocessor_config.json", "")):
            file = cached_file(str(path), name, _raise_exceptions_for_missing_entries=False)
            read = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
            processor = processor or (read.get(key) or {} if key else read)
    return as_read(told, processor)


def load_model(
    path: str | Path, *, dtype: str = "float32", device: str = "cpu", longest: int = 0
) -> tuple[nn.Module, PreTrainedTokenizerBase]:
    """A causal LM with our attention, and its tokenizer, from a folder, a GGUF file (whose weights are dequantised), a
    folder of adapters (merged into the base that it names) or a Hub name. safetensors and GGUF only. longest: the
    length of its longest row in tokens.

    Raises ValueError with a remedy for a missing or incomplete folder, for a name that cannot be fetched, for a model
    that is not a language model or does not fit into memory, and for an architecture that our attention or our
    log-probs would get wrong.
    """
    folder, file = Path(path), gguf_of(path)
    if (base := base_of(path)) is not None:
        model, _ = load_model(base, dtype=dtype, device=device, longest=longest)
        return with_adapters(model, folder), load_tokenizer(path)
    if not folder.is_dir() and file is None and (str(path).startswith((".", "/")) or str(path).count("/") > 1):
        raise ValueError(
            f"there is no model folder {folder}: name a folder in Hugging Face layout, or a Hub id such as Qwen/Qwen3-0.6B"
        )
    if file is None and folder.is_dir():
        _check_folder(folder)
        _check_memory(folder, dtype, device)
    tokenizer = load_tokenizer(path)
    with _loading(path):
        sight: int | Grids = getattr(tokenizer, "picture_tokens", 0)
        vision = bool(sight)
        kind: Any = AutoModelForImageTextToText if vision else AutoModelForCausalLM
        loaded: Any = kind.from_pretrained(
            *_source(path),
            **_quantised(file),
            dtype=getattr(torch, dtype),
            attn_implementation=_OURS if vision else NAME,
            **({} if file else {"use_safetensors": True}),
            trust_remote_code=remote_code.allowed(path),
            output_loading_info=True,
        )
        model, info = loaded
    if isinstance(sight, Grids):  # the model resizes pictures itself, wherever it is saved
        model.config.pictures = told_of(sight)
    if file:  # its weights are plain tensors by now; transformers' note about the file would forbid saving them
        model.hf_quantizer = None
        vars(model.config).pop("quantization_config", None)
    if lost := sorted(info.get("missing_keys") or ()):
        raise ValueError(
            f"{path} lacks {len(lost)} of the weights of a {type(model).__name__} ({lost[0]} is one): the download is not complete, or "
            "config.json is another model's; fetch it again"
        )
    spare = len(head_weight(model)) - len(tokenizer)
    if spare > max(2048, len(head_weight(model)) // 10):  # models round their vocabulary up, by some hundreds at most
        raise ValueError(
            f"the tokenizer of {path} knows {len(tokenizer)} ids and its model {len(head_weight(model))}: it is another model's; take the one "
            "that the model came with"
        )
    if len(tokenizer) > len(head_weight(model)):
        raise ValueError(
            f"the tokenizer of {path} knows {len(tokenizer)} ids and its model {len(head_weight(model))}: the rest would have no embedding; take "
            "the tokenizer that the model came with, or make its embedding larger (resize_token_embeddings)"
        )
    model = model.to(device)
    _probe(model, path)
    if 0 < (seen := window(model)) < longest:
        raise ValueError(
            f"{path} is a {type(model).__name__} that looks back {seen} tokens only (sliding window), and rows may have {longest}: set "
            f"max_length of sft, reward and prefer and max_tokens of rl and evaluate to {seen} or less"
        )
    return model, tokenizer


def window(model: nn.Module) -> int:
    """How many tokens a model's sliding-window layers look back; 0 if all layers see the whole row."""
    c = text_config(model)
    kinds = getattr(c, "layer_types", None)
    if getattr(c, "use_sliding_window", True) is False or (kinds and "sliding_attention" not in kinds):
        return 0
    return int(getattr(c, "sliding_window", None) or 0)


def longest_row(model: nn.Module) -> int:
    """The longest row that the model can process: limited by its positions or by its window."""
    c = text_config(model)
    return min(n for n in (int(c.max_position_embeddings), window(model)) if n)


def logit_factor(model: nn.Module) -> float:
    """The factor from hidden states times the head's weight to the logits: Cohere multiplies them (logit_scale),
    Granite divides them (logits_scaling)."""
    c = text_config(model)
    return float(getattr(c, "logit_scale", None) or 1.0) / float(getattr(c, "logits_scaling", None) or 1.0)


def _source(path: str | Path) -> tuple[str]:
    file = gguf_of(path)
    return (str(file.parent if file else path),)


def _quantised(file: Path | None) -> dict[str, Any]:
    """The arguments of transformers for a GGUF file."""
    return {} if file is None else {"gguf_file": file.name, "config": config_of(file)}


def _check_folder(folder: Path) -> None:
    """Raises ValueError for half a download, and for a model that is not a language model."""
    if half := sorted([*folder.glob("*.incomplete"), *folder.glob("*.part"), *folder.glob("*.crdownload")]):
        raise ValueError(f"{folder} holds {half[0].name}, half a download: fetch the model again")
    config = folder / "config.json"
    try:
        config_json = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    except ValueError as e:
        raise ValueError(f"{config} is not JSON ({e}): fetch the model again") from e
    kind = (config_json.get("architectures") or [""])[0]
    if re.search(r"For(Sequence|Token)Classification|RewardModel|ForQuestionAnswering", kind):
        raise ValueError(
            f"{folder} is a {kind}, a model with a head that scores texts, and a language model is wanted: name the one that it was made of"
        )
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as f:
            size = int.from_bytes(f.read(8), "little")
            head = f.read(size) if size < 1 << 30 else b""
        try:
            ends = max(v["data_offsets"][1] for k, v in json.loads(head).items() if k != "__metadata__")
        except (ValueError, KeyError, TypeError):
            ends = -1
        if ends < 0 or file.stat().st_size != 8 + size + ends:
            raise ValueError(
                f"{file} is not whole ({file.stat().st_size:,} bytes of {8 + size + max(ends, 0):,}): the download broke off or the file is "
                "damaged; fetch it again"
            )


def _check_memory(folder: Path, dtype: str, device: str) -> None:
    """Raises ValueError if the weights alone take more memory than is free."""
    numbers = weights_of(folder)
    wanted = numbers * getattr(torch, dtype).itemsize
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else psutil.virtual_memory().available
    if wanted > free:
        half = "; bfloat16 takes half (dtype)" if dtype == "float32" else ""
        raise ValueError(
            f"{folder} has {numbers / 1e9:.2f} billion weights, {wanted / 2**30:.1f} GiB in {dtype}, and {free / 2**30:.1f} GiB are free on "
            f"{device}{half}: a model of {free / 2**30 / 5 / getattr(torch, dtype).itemsize * 2**30 / 1e9:.2f} billion could be trained here"
        )


def save_model(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, path: str | Path, adapters: str = lora.NAME
) -> None:
    """Write model and tokenizer as one folder, whole or not at all (written beside, then renamed); adapters (of
    several, those of that name) are merged into the weights, and also saved beside them if they are to be kept."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    language_model: Any = model
    weights, own = folded(model, adapters), tuple(getattr(model, "own_layers", ()))
    if own:  # layers that other programs do not know are beside the model's weights, not among them
        every = dict(model.state_dict() if weights is None else weights)
        weights = {k: v for k, v in every.items() if k.partition(".")[0] not in own}
    with no_bars():
        language_model.save_pretrained(part, state_dict=weights)
    for name in own:
        layers = {k.partition(".")[2]: v.contiguous() for k, v in every.items() if k.partition(".")[0] == name}
        save_file(layers, part / f"{name}.safetensors")
    tokenizer.save_pretrained(part)
    if getattr(model, "keeps_adapters", False):
        save_adapters(model, part / ADAPTER, adapters)
    config = part / "tokenizer_config.json"
    kept = {
        k: v
        for k, v in json.loads(config.read_text(encoding="utf-8")).items()
        if k not in ("is_local", "local_files_only")
    }
    config.write_text(
        json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )  # its origin is not part of the model
    shutil.rmtree(path, ignore_errors=True)
    os.replace(part, path)


@contextmanager
def no_bars() -> Iterator[None]:
    """Hide transformers' progress bars: a local file loads in a moment."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _loading(path: str | Path) -> Iterator[None]:
    """Turns errors of loading into one sentence; shows bars only if something is downloaded."""
    local = Path(path).exists()
    try:
        with no_bars() if local else nullcontext():
            yield
    except ValueError as e:
        if "Unrecognized configuration class" in str(e):
            raise ValueError(
                f"{path} is not of an architecture that transformers loads as a language model; of those that read pictures, "
                f"these are supported: {KNOWN}"
            ) from None
        if "trust_remote_code" not in str(e):
            raise
        raise ValueError(remote_code.refusal(path)) from None
    except OSError as e:  # what transformers and the Hub raise for files that are missing or cannot be fetched
        remedy = (
            "it must hold config.json and model.safetensors (a .bin file is a pickle and is never loaded: convert it)"
            if local
            else "is it spelled right, is the network there, and does a gated model have its HF_TOKEN? A folder can be named instead"
        )
        raise ValueError(f"cannot load {path} ({str(e).strip().splitlines()[0]}): {remedy}") from e


@torch.no_grad()
def _probe(model: nn.Module, path: str | Path) -> None:
    """Raises ValueError if packed rows see each other or logits are not hidden states times the head; two short rows
    show it."""
    device = head_weight(model).device
    ids, position = torch.arange(1, 9, device=device), torch.tensor([0, 1, 2, 3, 4, 0, 1, 2], device=device)
    rows = PackedRows([5, 3], device)
    probe = attention.asked
    before = probe.calls
    try:
        hidden = own_hidden(model, ids, position, rows)
        other = own_hidden(model, torch.cat([ids[:5] + 1, ids[5:]]), position, rows)
        logits = model(input_ids=ids[None], position_ids=position[None], rows=rows, use_cache=False).logits[0]
    except ValueError as e:
        raise ValueError(f"{path} is a {type(model).__name__}, which cannot be trained here: {e}") from e
    if probe.calls == before:
        raise ValueError(
            f"{path} is a {type(model).__name__}, whose attention cannot be replaced by one over packed rows (ALiBi and older code): choose "
            "another architecture"
        )
    # Equal up to rounding only: the experts of a mixture process the tokens of all rows in one product.
    if not torch.allclose(
        hidden[5:],
        other[5:],
        rtol=0,
        atol=float(hidden.abs().max()) * (1e-5 if hidden.dtype == torch.float32 else 0.02),
    ):
        raise ValueError(
            f"{path} is a {type(model).__name__}, whose layers let packed rows see each other: choose a model that has attention alone"
        )
    if not torch.allclose(logits.float(), (hidden @ head_weight(model).T).float(), atol=1e-2, rtol=1e-2):
        raise ValueError(
            f"{path} is a {type(model).__name__}, whose logits are not hidden states times the head's weight: choose one without "
            "soft-capped or biased logits"
        )


def n_parameters(model: nn.Module) -> int:
    floats = sum(p.numel() for p in model.parameters() if p.is_floating_point())
    return floats + n_quantised(model)


def head_weight(model: nn.Module) -> Tensor:
    """Weight [V, d] of the output head (the embedding if they are tied)."""
    language_model: Any = model
    return language_model.get_output_embeddings().weight


def hidden_states(
    model: nn.Module, ids: Tensor, position: Tensor, rows: PackedRows | SharedRows | CachedRows
) -> Tensor:
    """Last hidden states: ids, position [T] (packed) or [B, n] (cached) -> [T, d] or [B, n, d]. The head is not
    applied."""
    if ids.dim() == 1 and not isinstance(rows, CachedRows):
        layers = native.of(model)
        if layers is not None:
            return layers(model, ids, position, rows)
    return own_hidden(model, ids, position, rows)


def own_hidden(model: nn.Module, ids: Tensor, position: Tensor, rows: PackedRows | SharedRows | CachedRows) -> Tensor:
    """`hidden_states` by the model's own layers, scaled so that the head's weight times them gives the logits."""
    hidden = own_forward(model, ids, position, rows)
    language_model: Any = model
    factor = logit_factor(model) if language_model.get_output_embeddings() is not None else 1.0
    return hidden if factor == 1.0 else hidden * factor


def input_embeddings(model: nn.Module, ids: Tensor) -> Tensor:
    """What the first layer reads for ids [...]: [..., d]."""
    language_model: Any = model
    return language_model.get_input_embeddings()(ids)


def embedded_states(
    model: nn.Module, given: Tensor, position: Tensor, rows: PackedRows | SharedRows | CachedRows
) -> Tensor:
    """`own_hidden` for input embeddings [T, d] or [B, n, d] that need not be those of tokens."""
    hidden, factor = own_embedded(model, given, position, rows), logit_factor(model)
    return hidden if factor == 1.0 else hidden * factor


@contextmanager
def checkpointed_layers(model: nn.Module) -> Iterator[None]:
    """Within the context, a forward pass keeps only the input of each layer, and the backward pass recomputes the rest:
    one more forward pass, with about the memory of one layer (activation checkpointing; Chen et al. 2016, arXiv
    1604.06174). Values and gradients stay the same, bit for bit. Raises ValueError for a model without such layers.

    We do not use transformers' own switch: it works only in training mode, which would also turn dropout on.
    """
    body: Any = model.base_model
    layers = [m for m in body.modules() if isinstance(m, GradientCheckpointingLayer)]
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
