"""A model as one GGUF file, which llama.cpp, Ollama and LM Studio read: written and read by the package `gguf`.

Readers most often get wrong not the weights but the metadata: which ids a text becomes, how a chat is written, which
token ends a turn. So all of it goes into the file (`contents` reads it back), and a tokenizer that the format cannot
describe is refused. A GGUF does not store the rule that splits a text before merges are applied; it names one of the
rules that are built into llama.cpp (`CUTS`). The name is found by trying the rules on texts that distinguish them, as
llama.cpp's own converter does.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from training.model.gguf_header import config_of, read_header
from training.model.lora import folded
from training.model.model import no_bars
from training.model.render import Renderer

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # kinds of tokens
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}  # model_type -> of the file
QUANTS = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
_BLOCK = 32  # weights that share a scale
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CASED = (
    r"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{0}"
    r"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{0}"
    r"|\p{{N}}{1}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# tokenizer.ggml.pre -> the rules by which llama.cpp splits a text, one after the other (src/llama-vocab.cpp)
CUTS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3.format("{1,3}"),),
    "qwen2": (_LLAMA3.format(""),),
    "gpt-4o": (_CASED.format("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "{1,3}"),),
    "tekken": (_CASED.format("", ""),),
}
# Texts on which no two of these rules agree: contractions in both cases, runs of digits, of spaces and of line ends,
# marks before letters, words of mixed case, scripts without spaces.
PROBES = (
    "I'm sure they'LL say: \"it's 12345 + 678 = 13023\", won't THEY'RE?",
    "a  b   c\t\td\n\ne\n \n  f\r\n\r\ng   \n",
    "3.14159, 1000000 and 42; x=1; y=22; z=333; w=4444",
    "don't.stop#here!now ...etc... (a)[b]{c} -- --- '' \"\"",
    "camelCaseWords HTMLParser iPhone McDonald ABCdef XMLHttpRequest",
    "Größe naïve Ελλάδα Привет мир 你好世界 こんにちは 안녕하세요 العربية हिन्दी ไทย",
    "😀👍🏽 ½ ² ٣٤٥ Ⅷ é \u00a0nbsp \u200bzero",
    "def f(x):\n    return x + 1  # comment\n\n\nclass A:\n\tpass\n",
    " leading",
    "trailing ",
    "/path/to/file.txt\n/other\n",
    "a/\nb//\n",
    "",
)


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The metadata of a GGUF file. `tokens`, `kinds` [vocabulary]; `merges` as "left right"."""

    architecture: str
    cut: str
    tokens: tuple[str, ...]
    kinds: tuple[int, ...]
    merges: tuple[str, ...]
    eos: int | None
    begins: int | None
    template: str


def write(model: nn.Module, tokenizer: PreTrainedTokenizerBase, path: Path, *, quant: str = "f32") -> None:
    """Write a causal LM and its tokenizer as one file, whole or not at all.

    quant: type of the matrices, one of QUANTS. With a block quantisation, matrices whose rows are not a multiple of 32
    stay f16; the embedding and the head are never below q8_0; vectors are f32.

    Raises ValueError if the package gguf is missing, and for an architecture, a position encoding or a tokenizer that
    the format, or our map of names, cannot express.
    """
    if find_spec("gguf") is None:
        raise ValueError("a GGUF file is written by the package gguf, which is missing: pip install 'espalier[gguf]'")
    import gguf

    if quant not in QUANTS:
        raise ValueError(f"there is no quantisation {quant!r}: there are {', '.join(QUANTS)}")
    language_model: Any = model
    config = language_model.config
    name = _architecture(config)
    arch = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == name)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    vocabulary = _vocabulary(tokenizer, len(language_model.get_output_embeddings().weight))
    part = path.with_name(path.name + ".part")
    out = gguf.GGUFWriter(part, name)
    try:
        _describe(out, config, vocabulary, name)
        out.add_file_type(getattr(gguf.LlamaFileType, {"f32": "ALL_F32"}.get(quant, f"MOSTLY_{quant.upper()}")))
        out.add_quantization_version(gguf.GGML_QUANT_VERSION)
        for key, value in _tensors(model):
            place = names.get_name(key, try_suffixes=(".weight", ".bias"))
            if place is None:
                raise ValueError(f"the tensor {key} of a {type(model).__name__} has no name in a GGUF file")
            data = value.detach().float().cpu().numpy()
            if name == "llama" and ("attn_q." in place or "attn_k." in place):
                data = _interleaved(
                    data, config.num_attention_heads if "attn_q." in place else config.num_key_value_heads
                )
            kind = _kind(gguf, place, data, quant)
            out.add_tensor(place, gguf.quants.quantize(data, kind), raw_dtype=kind)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _architecture(config: Any) -> str:
    """The name of the architecture in a file. Raises ValueError for an architecture that readers would misread."""
    kind = config.model_type
    if kind not in ARCHITECTURES:
        raise ValueError(
            f"a model of the type {kind!r} has no map of tensor names to a GGUF file here: {', '.join(ARCHITECTURES)} have one "
            "(llama.cpp's own convert_hf_to_gguf.py reads the folder that `--to hub` writes)"
        )
    rope = dict(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {})
    if (scaling := rope.get("rope_type", "default")) != "default":
        raise ValueError(
            f"the positions of this model are scaled ({scaling}), which is not written here: a reader would not scale them"
        )
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    window = getattr(config, "sliding_window", None)
    if kinds or (kind == "mistral" and window):
        raise ValueError("this model attends in a sliding window, which is not written here: a reader would see all")
    return ARCHITECTURES[kind]


def _describe(out: Any, config: Any, vocabulary: Mapping[str, Any], name: str) -> None:
    rope = dict(getattr(config, "rope_parameters", None) or {})
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(float(rope.get("rope_theta", getattr(config, "rope_theta", 10_000.0))))
    out.add_key_length(head)
    out.add_value_length(head)
    out.add_rope_dimension_count(head)
    out.add_vocab_size(len(vocabulary["tokens"]))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre(vocabulary["cut"])
    out.add_token_list(vocabulary["tokens"])
    out.add_token_types(vocabulary["kinds"])
    out.add_token_merges(vocabulary["merges"])
    for kind, add in (("eos", out.add_eos_token_id), ("bos", out.add_bos_token_id), ("pad", out.add_pad_token_id)):
        if vocabulary[kind] is not None:
            add(vocabulary[kind])
    out.add_add_bos_token(vocabulary["begins"])
    out.add_add_space_prefix(False)
    if vocabulary["template"]:
        out.add_chat_template(vocabulary["template"])


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Name and value of every weight, a tied head left out."""
    language_model: Any = model
    tied = language_model.get_output_embeddings().weight is language_model.get_input_embeddings().weight
    for key, value in folded(model).items():
        if not (tied and key == "lm_head.weight") and not key.endswith("rotary_emb.inv_freq"):
            yield key, value


def _interleaved(data: np.ndarray, heads: int) -> np.ndarray:
    """Rows [heads x d, ...] in the order of llama.cpp's rotary embedding for `llama`: the two of a pair are
    adjacent."""
    return data.reshape(heads, 2, -1, *data.shape[1:]).swapaxes(1, 2).reshape(data.shape)


def _kind(gguf: Any, place: str, data: np.ndarray, quant: str) -> Any:
    types = gguf.GGMLQuantizationType
    if data.ndim < 2:
        return types.F32
    if quant in ("f32", "f16", "bf16"):
        return types[quant.upper()]
    if data.shape[-1] % _BLOCK:
        return types.F16
    return types.Q8_0 if place.split(".")[0] in ("token_embd", "output") else types[quant.upper()]


def _vocabulary(tokenizer: PreTrainedTokenizerBase, rows: int) -> dict[str, Any]:
    """The fields for a tokenizer whose model has `rows` embeddings. Raises ValueError for a tokenizer that the format
    cannot express."""
    fast: Any = getattr(tokenizer, "backend_tokenizer", None)
    backend = {} if fast is None else json.loads(fast.to_str())
    model = backend.get("model", {})
    byte_level = "ByteLevel" in json.dumps([backend.get("pre_tokenizer"), backend.get("decoder")])
    if model.get("type") != "BPE" or not byte_level or backend.get("normalizer") not in (None, {"type": "NFC"}):
        raise ValueError(
            f"a GGUF file is written of byte-level BPE tokenizers alone, and this one is {model.get('type', 'none of that library')}"
            f"{'' if byte_level else ' without bytes'}: give the model to llama.cpp's own convert_hf_to_gguf.py"
        )
    tokens = [f"[PAD{i}]" for i in range(rows)]
    kinds = [UNUSED] * rows
    added = {i: t for i, t in tokenizer.added_tokens_decoder.items()}
    for text, i in tokenizer.get_vocab().items():
        tokens[i] = text
        kinds[i] = NORMAL if i not in added else CONTROL if added[i].special else USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in model.get("merges", ())]
    begins = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    fields = {
        "tokens": tokens,
        "kinds": kinds,
        "merges": merges,
        "eos": Renderer(tokenizer).end_id,  # where a turn ends
        "bos": tokenizer.bos_token_id,
        "pad": tokenizer.pad_token_id,
        "begins": begins,
        "template": tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else "",
    }
    for cut in CUTS:
        if disagreement(tokenizer, reader(tokens, kinds, merges, cut)) is None:
            return fields | {"cut": cut}
    raise ValueError(
        f"the tokenizer of {tokenizer.name_or_path or 'this model'} cuts texts by a rule that GGUF files have no name for "
        f"({', '.join(CUTS)} were tried), so a reader would give other ids to the same text: `--to hub` and `--to vllm` keep the "
        "tokenizer as it is"
    )


def reader(tokens: Sequence[str], kinds: Sequence[int], merges: Iterable[str], cut: str) -> Any:
    """The tokenizer (of the library `tokenizers`) that a reader builds from the file."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {t: i for i, (t, k) in enumerate(zip(tokens, kinds, strict=True)) if k == NORMAL}
    whole = [(t, k) for t, k in zip(tokens, kinds, strict=True) if k in (CONTROL, USER_DEFINED)]
    vocabulary |= {t: i for i, (t, k) in enumerate(zip(tokens, kinds, strict=True)) if k in (CONTROL, USER_DEFINED)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[(a, b) for a, b in (m.split(" ") for m in merges)]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(rule), "isolated") for rule in CUTS[cut]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in whole if k == CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t, k in whole if k == USER_DEFINED])
    return tokenizer


def disagreement(tokenizer: PreTrainedTokenizerBase, other: Any) -> str | None:
    """The first of the test texts that a tokenizer and a `reader` split differently (a small vocabulary may hide that
    in the ids) or encode differently; None if there is none."""
    own: Any = tokenizer.backend_tokenizer
    for text in PROBES:
        cuts = ([at for _, at in rule.pre_tokenize_str(text)] for rule in (own.pre_tokenizer, other.pre_tokenizer))
        ids = other.encode(text, add_special_tokens=False).ids
        if len({str(c) for c in cuts}) > 1 or tokenizer(text, add_special_tokens=False)["input_ids"] != ids:
            return text
    return None


def contents(path: Path) -> Contents:
    """The metadata of a file. Raises ValueError for a file that is not GGUF or has no tokenizer."""
    header = read_header(path)
    if not header.get("tokenizer.ggml.tokens"):
        raise ValueError(f"{path} has no vocabulary")
    return Contents(
        architecture=header.architecture,
        cut=header.get("tokenizer.ggml.pre", ""),
        tokens=tuple(header.get("tokenizer.ggml.tokens")),
        kinds=tuple(header.get("tokenizer.ggml.token_type", ())),
        merges=tuple(header.get("tokenizer.ggml.merges", ())),
        eos=header.get("tokenizer.ggml.eos_token_id"),
        begins=header.get("tokenizer.ggml.bos_token_id") if header.get("tokenizer.ggml.add_bos_token") else None,
        template=header.get("tokenizer.chat_template", ""),
    )


def load(path: Path, *, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model of a file as transformers reads it, its own attention kept."""
    from transformers import AutoModelForCausalLM

    with no_bars(), contextlib.redirect_stderr(io.StringIO()):  # a progress bar that cannot be switched off
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, config=config_of(path), dtype=dtype
        )
        return model.eval()
