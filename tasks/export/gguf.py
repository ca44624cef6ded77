"""`--to gguf`: one file that llama.cpp, Ollama and LM Studio read, its weights at full precision or quantised."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from torch import nn
from transformers import PreTrainedTokenizerBase

from tasks.core.errors import UserError
from tasks.export import parity
from training.model import gguf_file
from training.model.render import DAY


def export(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, reference: parity.Reference, path: Path, quant: str
) -> list[parity.Parity]:
    """Write the file and read it back; returns how each reader compares. Raises UserError if the model cannot be
    written, or readers see a different model."""
    try:
        gguf_file.write(model, tokenizer, path, quant=quant)
    except ValueError as e:
        raise UserError(str(e)) from e
    return check(model, tokenizer, reference, path, quant)


def check(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, reference: parity.Reference, path: Path, quant: str
) -> list[parity.Parity]:
    """The same check for an existing file."""
    content = gguf_file.contents(path)
    if content.cut not in gguf_file.CUTS:
        raise UserError(
            f"{path} names the rule {content.cut!r} for cutting texts, which is not one of the model's tokenizer"
        )
    try:
        reads = gguf_file.reader(content.tokens, content.kinds, content.merges, content.cut)
    except Exception as e:  # tokenizers raises no class of its own
        raise UserError(f"{path} has another vocabulary than the model: its merges do not fit it ({e})") from e
    ends = frozenset(() if content.eos is None else (content.eos,))
    vocabulary = {t: i for i, t in enumerate(content.tokens)}
    theirs = parity.Words(
        vocabulary=vocabulary,
        ends=ends,
        rendered=lambda question: str(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": question}],
                chat_template=content.template,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
                strftime_now=DAY.strftime,
            )
        ),
        encoded=lambda text: reads.encode(text, add_special_tokens=False).ids,
    )
    parity.words(tokenizer, reference, theirs, path)
    if wrong := gguf_file.disagreement(tokenizer, reads):
        raise UserError(f"{path} gives other ids to the text {wrong[:40]!r} than the tokenizer of the model")
    name = f"transformers {version('transformers')}"
    compared = [parity.tokens(model, reference, gguf_file.load(path), name, divergence=quant != "f32")]
    if find_spec("llama_cpp") is not None:
        compared.append(_llama_cpp(reference, path))
    if quant == "f32":
        for one in compared:
            parity.exact(one, path)
    return compared


def _llama_cpp(reference: parity.Reference, path: Path) -> parity.Parity:
    """How llama.cpp reads the file: its own ids of every prompt, and its own likeliest tokens."""
    import llama_cpp  # type: ignore[import-not-found]

    longest = max(len(p) + len(s) for p, s in zip(reference.prompts, reference.turns, strict=True))
    llama = llama_cpp.Llama(str(path), n_ctx=longest + 8, logits_all=True, verbose=False)
    same = differ = count = 0
    for prompt, turn in zip(reference.prompts, reference.turns, strict=True):
        text = llama.detokenize(prompt.tolist(), special=True)
        if (ids := llama.tokenize(text, add_bos=False, special=True)) != prompt.tolist():
            raise UserError(
                f"llama.cpp gives other ids to the prompt {text[:40]!r} than the tokenizer of the model: {ids}"
            )
        llama.reset()
        llama.eval([*prompt.tolist(), *turn.tolist()])
        logits = np.array(llama.scores[len(prompt) - 1 : len(prompt) + len(turn) - 1])
        short = logits.max(-1) - logits[np.arange(len(turn)), turn]
        same += int((logits.argmax(-1) == turn).sum())
        differ += int((short > 20 * parity.TIE).sum())  # its key/value cache is float16
        count += len(turn)
    name = f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"
    return parity.Parity(reader=name, prompts=len(reference.prompts), tokens=count, differ=differ, top1=same / count)
