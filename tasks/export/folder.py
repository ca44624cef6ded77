"""`--to hub` and `--to vllm`: a folder in Hugging Face layout, as transformers and vLLM load it; and `--to adapter`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from tasks.core.errors import UserError
from tasks.export import parity
from training.model.lora import ADAPTER, rounded
from training.model.model import load_model, no_bars, save_model
from training.model.remote_code import allowed
from training.model.render import DAY, Renderer

FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template*",
    "head.json",
)


def write(source: Path | str, model: nn.Module, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """The model's folder: its files unchanged if it is such a folder, else written again in the dtype of its
    weights."""
    if Path(source).is_dir():
        out.mkdir(parents=True)
        for pattern in FILES:
            for file in sorted(Path(source).glob(pattern)):
                shutil.copyfile(file, out / file.name)
    else:
        kept = getattr(model.config, "dtype", None) or torch.float32
        save_model(model.to(kept), tokenizer, out)
        model.to(torch.float32)
    _end(out, Renderer(tokenizer).end_id)


def _end(out: Path, end: int) -> None:
    """Make generation with the folder's own settings end a turn where the model does."""
    path = out / "generation_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    ends = settings.get("eos_token_id")
    ends = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
    if end not in ends:
        settings["eos_token_id"] = [end, *ends] if ends else end
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def check(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, reference: parity.Reference, out: Path
) -> list[parity.Parity]:
    """Read the folder with transformers, and with vLLM if it is installed. Raises UserError if it is a different
    model."""
    try:
        own = {"trust_remote_code": allowed(out)}
        other = AutoTokenizer.from_pretrained(str(out), **own)
        with no_bars():
            reader = AutoModelForCausalLM.from_pretrained(
                str(out), dtype=torch.float32, use_safetensors=True, **own
            ).eval()
    except (OSError, ValueError) as e:
        raise UserError(f"transformers cannot load {out} again: {str(e).strip().splitlines()[0]}") from e
    theirs = parity.Words(
        vocabulary=other.get_vocab(),
        ends=_ends(tokenizer, other, reader.generation_config),
        rendered=lambda question: other.apply_chat_template(
            [{"role": "user", "content": question}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
            strftime_now=DAY.strftime,
        ),
        encoded=lambda text: other(text, add_special_tokens=False)["input_ids"],
    )
    if not other.chat_template:
        raise UserError(f"{out} has another chat template than the model: none at all; take the template of the model")
    parity.words(tokenizer, reference, theirs, out)
    compared = parity.tokens(model, reference, reader, f"transformers {version('transformers')}")
    parity.exact(compared, out)
    _generates(reference, reader, other, out)
    return [compared]


def _ends(
    tokenizer: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase, settings: GenerationConfig
) -> frozenset[int]:
    """The ids at which a reader of the folder ends a turn: `generate` asks the settings, a server the tokenizer too."""
    ends: Any = other.eos_token_id
    if ends != tokenizer.eos_token_id:
        return frozenset(() if ends is None else (ends,))
    ends = settings.eos_token_id
    return frozenset([ends] if isinstance(ends, int) else ends or ())


def _generates(reference: parity.Reference, reader: Any, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """The first few prompts once more, by `generate` as a user calls it: it must end where the model does."""
    for question, own in list(zip(reference.questions, reference.turns, strict=True))[:2]:
        ids: Any = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
            enable_thinking=False,
            strftime_now=DAY.strftime,
        )
        theirs = reader.generate(**ids, max_new_tokens=parity.TOKENS, do_sample=False, repetition_penalty=1.0)
        theirs = theirs[0, ids["input_ids"].shape[1] :].tolist()
        if theirs != own.tolist() and not _tied(reader, ids["input_ids"][0], theirs, own.tolist()):
            raise UserError(
                f"{out} generates something else than the model: to {question[:40]!r} {tokenizer.decode(theirs)[:60]!r} instead of "
                f"{tokenizer.decode(own)[:60]!r}"
            )


@torch.no_grad()
def _tied(reader: nn.Module, prompt: torch.Tensor, theirs: list[int], own: list[int]) -> bool:
    """Whether two continuations diverge at two equally likely tokens."""
    at = next((i for i, (a, b) in enumerate(zip(theirs, own)) if a != b), None)
    if at is None:
        return False
    logits = reader(input_ids=torch.cat([prompt, torch.tensor(own[:at], dtype=torch.long)])[None]).logits[0, -1]
    return abs(float(logits[theirs[at]] - logits[own[at]])) <= parity.TIE


def by_vllm(reference: parity.Reference, out: Path, max_length: int) -> parity.Parity | None:
    """vLLM's results for the folder; None if it is not installed."""
    if find_spec("vllm") is None:
        return None
    import os

    from training.rollout.vllm_engine import ENVIRONMENT, settings

    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import vllm  # type: ignore[import-not-found]

    from training.rollout.vllm_engine import _make_readable

    _make_readable()
    llm = vllm.LLM(model=str(out), trust_remote_code=allowed(out), **settings(max_length=max_length, dtype="float32"))
    wanted = vllm.SamplingParams(temperature=0.0, max_tokens=parity.TOKENS, logprobs=5, skip_special_tokens=False)
    answers = llm.generate(
        [{"prompt_token_ids": p.tolist()} for p in reference.prompts], [wanted] * len(reference.prompts), use_tqdm=False
    )
    count = same = differ = 0
    for answer, wanted_ids in zip(answers, reference.turns, strict=True):
        (theirs,) = answer.outputs
        for token, own, known in zip(theirs.token_ids, wanted_ids.tolist(), theirs.logprobs, strict=False):
            count += 1
            same += token == own
            if token != own:  # the text after it differs
                differ += own not in known or known[token].logprob - known[own].logprob > 10 * parity.TIE
                break
    return parity.Parity(
        reader=f"vllm {vllm.__version__}",  # its CPU build is a package with another name
        prompts=len(answers),
        tokens=count,
        differ=differ,
        top1=same / max(count, 1),
    )


def adapter(
    source: Path | str, model: nn.Module, reference: parity.Reference, base: Path | str, out: Path
) -> list[parity.Parity]:
    """The adapter that a training with `lora.merge: false` kept, naming `base`. Raises UserError if there is none, or
    if base and adapter give other outputs than the model."""
    kept = Path(source) / ADAPTER
    if not kept.is_dir():
        raise UserError(
            f"{source} keeps no adapter: train it with `lora: {{rank: 16, merge: false}}`, or export the whole model with --to hub"
        )
    shutil.copytree(kept, out)
    path = out / "adapter_config.json"
    settings: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(
        json.dumps({**settings, "base_model_name_or_path": str(base)}, indent=2, sort_keys=True) + "\n",
        encoding="utf-8",
    )
    return adapter_check(model, reference, base, out)


def adapter_check(model: nn.Module, reference: parity.Reference, base: Path | str, out: Path) -> list[parity.Parity]:
    """peft loads `base` and the adapter of the folder: they must give the same outputs as the model."""
    from peft import PeftModel

    try:
        load_model(base)  # one sentence for what is wrong with it
        with no_bars():
            reader = AutoModelForCausalLM.from_pretrained(
                str(base), dtype=torch.float32, use_safetensors=True, trust_remote_code=allowed(base)
            )
        rounded(reader, out)
        reader = PeftModel.from_pretrained(reader, str(out)).eval()
    except (ValueError, OSError, RuntimeError) as e:
        raise UserError(f"peft cannot load the adapter on {base}: {str(e).strip().splitlines()[0]}") from e
    compared = parity.tokens(model, reference, reader, f"peft {version('peft')}")
    parity.exact(compared, out)
    return [compared]
