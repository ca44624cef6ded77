"""Checks that an exported model gives the same outputs as the original: the program that users will use reads it back,
and gets the same prompts.

Two things are compared, and the first fails more often than the second:

- words: the vocabulary, the chat template, the token that ends a turn, and the ids of every prompt;
- tokens: the greedy continuation of every prompt. The model samples it as everywhere else here; the reader says at each
  of its tokens which one it finds likeliest. In float32 every token must be the same; two that the reader finds equally
  likely (within TIE of its logits) count as the same. A quantised file cannot be identical: its distance is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from synth.types import Message, Problem, Sampling
from tasks.core.errors import UserError
from tasks.storage import tables
from training.model.attention import PackedRows
from training.model.model import head_weight, hidden_states
from training.model.render import Renderer
from training.rollout.torch_sampler import TorchSampler

TIE = 1e-3  # logits
TOKENS = 32  # of a continuation
_BATCH = 8  # prompts that are read in one pass
_ASKED = (
    "What is {a} plus {b}?",
    "Name {n} cities with more than {b} people.",
    "Write a sentence of {a} words with '{w}' in it.",
    "Translate '{w} number {a}' into French.",
    "Sort: {b}, {a}, {n}, 7.",
    "Is {a} a prime number? Explain.",
    "def f_{n}(x):\n    return x + {a}\n\nWhat does f_{n}({b}) return?",
    "¿Qué significa «{w}»? Κι ακόμα: 你好 {a} 😀",
    "  Two spaces,\ttabs\nand {n} lines\n\nfollow: {w}.  ",
    "It's {a}; they'll say \"{w}\", won't THEY'RE {b}?",
)
_WORDS = ("river", "garden", "Zelton", "naïve", "espalier", "antidisestablishmentarianism", "HTTPServer")


@dataclass(frozen=True, kw_only=True)
class Parity:
    """How a reader's tokens compare with the model's.

    differ  tokens for which the reader finds another token more likely, by more than TIE
    top1    share of tokens that are also the reader's most likely ones
    kl      mean KL(model || reader) per token, in nats; None if it was not requested
    """

    reader: str
    prompts: int
    tokens: int
    differ: int
    top1: float
    kl: float | None = None

    def sentence(self) -> str:
        """In words."""
        exact = f"all {self.tokens} greedy tokens of {self.prompts} prompts are the same"
        far = f"{self.top1:.1%} of {self.tokens} greedy tokens of {self.prompts} prompts are the same"
        kl = "" if self.kl is None else f", mean KL {self.kl:.4f} nats a token"
        return f"{far if self.differ else exact}{kl} (read by {self.reader})"

    def record(self) -> dict[str, Any]:
        return {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class Words:
    """A reader's encoding of texts: token -> id, the prompt of a question (as text), the ids of a text, the ids at
    which it ends a turn."""

    vocabulary: Mapping[str, int]
    rendered: Callable[[str], str]
    encoded: Callable[[str], Sequence[int]]
    ends: frozenset[int]


@dataclass(frozen=True)
class Reference:
    """Questions, the ids of their prompts, and the model's greedy answer to each."""

    questions: tuple[str, ...]
    prompts: tuple[np.ndarray, ...]
    turns: tuple[np.ndarray, ...]


def questions(root: Path, n: int) -> list[str]:
    """`n` questions: those that the project holds out, then made-up ones of every kind of text."""
    file = root / "artifacts" / "questions" / "problems.parquet"
    held = sorted(p.question for p in tables.read(file, Problem) if p.split == "test") if file.exists() else []
    generated = (
        _ASKED[i % len(_ASKED)].format(a=17 * i + 3, b=1000 * i + 999, n=i % 9 + 2, w=_WORDS[i % len(_WORDS)])
        for i in range(n)
    )
    return list(dict.fromkeys([*held[: n // 2], *generated]))[:n]


def ask(model: nn.Module, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Reference:
    """The model's answers. Raises UserError if no prompt fits into its context."""
    config: Any = model.config
    renderer, room = Renderer(tokenizer), int(config.max_position_embeddings) - TOKENS
    prompts = [renderer.prompt([Message(role="user", content=t)]) for t in texts]
    fits = [i for i, p in enumerate(prompts) if len(p) <= room]
    if not fits:
        raise UserError(f"no prompt of the check fits into a context of {room + TOKENS} tokens")
    session = TorchSampler(model, renderer.end_id).open([prompts[i] for i in fits], [0] * len(fits))
    turns = session.generate(Sampling(temperature=0.0, max_tokens=TOKENS))
    return Reference(tuple(texts[i] for i in fits), tuple(prompts[i] for i in fits), tuple(t.ids for t in turns))


@torch.no_grad()
def tokens(model: nn.Module, reference: Reference, reader: nn.Module, name: str, *, divergence: bool = False) -> Parity:
    """How the tokens of a `reader` compare (a causal LM as transformers loads it)."""
    same = count = differ = 0
    kl = 0.0
    for lo in range(0, len(reference.prompts), _BATCH):
        rows = list(zip(reference.prompts[lo : lo + _BATCH], reference.turns[lo : lo + _BATCH], strict=True))
        theirs = _read(reader, rows)
        ours = _own(model, rows) if divergence else None
        own = torch.from_numpy(np.concatenate([s for _, s in rows]))
        short = theirs.amax(-1) - theirs.gather(-1, own[:, None]).squeeze(-1)
        same += int((theirs.argmax(-1) == own).sum())
        differ += int((short > TIE).sum())
        count += len(own)
        if ours is not None:
            a, b = ours.log_softmax(-1), theirs.log_softmax(-1)
            kl += float((a.exp() * (a - b)).sum(-1).double().sum())
    return Parity(
        reader=name,
        prompts=len(reference.prompts),
        tokens=count,
        differ=differ,
        top1=same / count,
        kl=kl / count if divergence else None,
    )


def _read(reader: nn.Module, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> Tensor:
    """[tokens, V] float32 logits of a padded batch, at the tokens that were said."""
    lengths = [len(p) + len(s) for p, s in rows]
    ids = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, (prompt, turn) in enumerate(rows):
        ids[i, : lengths[i]] = torch.from_numpy(np.concatenate([prompt, turn]))
        mask[i, : lengths[i]] = 1
    logits = reader(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return torch.cat([logits[i, len(p) - 1 : n - 1].float() for i, ((p, _), n) in enumerate(zip(rows, lengths))])


def _own(model: nn.Module, rows: Sequence[tuple[np.ndarray, np.ndarray]]) -> Tensor:
    """As `_read`, of the model itself, its rows packed."""
    lengths = [len(p) + len(s) for p, s in rows]
    ids = torch.from_numpy(np.concatenate([x for row in rows for x in row]))
    position = torch.cat([torch.arange(n) for n in lengths])
    hidden = hidden_states(model, ids, position, PackedRows(lengths, ids.device)).split(lengths)
    kept = torch.cat([h[len(p) - 1 : -1] for h, (p, _) in zip(hidden, rows, strict=True)])
    return (kept @ head_weight(model).T).float()


def words(tokenizer: PreTrainedTokenizerBase, reference: Reference, theirs: Words, where: Path) -> None:
    """Raises UserError if a reader of `where` has a different vocabulary, template or end-of-turn token than the model
    was trained with."""
    renderer, own = Renderer(tokenizer), tokenizer.get_vocab()
    for token, i in own.items():
        if theirs.vocabulary.get(token) != i:
            other = next((t for t, k in theirs.vocabulary.items() if k == i), None)
            raise UserError(
                f"{where} has another vocabulary than the model: its id {i} is {other!r} and the model's is {token!r}; take the tokenizer "
                "that the model was trained with"
            )
    if renderer.end_id not in theirs.ends:
        named = ", ".join(repr(tokenizer.decode([i])) for i in sorted(theirs.ends)) or "nothing"
        raise UserError(
            f"{where} ends a turn at {named}, and the model ends its turns with {renderer.end!r} (id {renderer.end_id}): a reader would "
            "let it write on; name that token as eos_token_id"
        )
    for question, prompt in zip(reference.questions, reference.prompts, strict=True):
        text = theirs.rendered(question)
        ids = [int(i) for i in theirs.encoded(text)]
        if ids == prompt.tolist():
            continue
        if text != (meant := renderer.tokenizer.decode(prompt)):
            at = next((i for i, (a, b) in enumerate(zip(text, meant)) if a != b), min(len(text), len(meant)))
            raise UserError(
                f"{where} has another chat template than the model: to {question[:40]!r} it writes {text[at : at + 40]!r} where the model "
                f"was trained on {meant[at : at + 40]!r}; take the template of the model"
            )
        raise UserError(f"{where} gives other ids to the prompt {question[:40]!r} than the tokenizer of the model")


def exact(compared: Parity, where: Path) -> None:
    """Raises UserError if tokens differ."""
    if compared.differ:
        raise UserError(
            f"{where} says something else than the model: {compared.differ} of {compared.tokens} greedy tokens differ, read by {compared.reader}; "
            "nothing was exported"
        )
