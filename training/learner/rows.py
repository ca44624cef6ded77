"""Makes training rows of demonstrations and pairs, tokenised exactly as rollouts are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from synth.types import Message, PreferencePair
from training.learner.pack import Row, pack
from training.model.render import Renderer
from training.types import Batch


SCORED = 1 << 12  # held-out rows that are scored as one batch


def demonstration_row(
    renderer: Renderer, messages: Sequence[Message], context_weight: float, *, last: bool = False
) -> Row:
    """Loss weight 1 on the model's turns, `context_weight` on all other tokens (0: those are not trained on). last:
    only the last turn is trained on, earlier turns count as context."""
    return lesson_row(*demonstration_tokens(renderer, messages, last=last), context_weight)


def demonstration_tokens(
    renderer: Renderer, messages: Sequence[Message], *, last: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """ids [n] int64 of a conversation, learned [n] bool: the model's turns, with `last` the last of them alone."""
    ids, learned = renderer.demonstration(messages)
    if last and not learned.all():
        learned = (
            np.arange(len(learned)) > np.flatnonzero(~learned).max()
        )  # messages of the other side separate the turns
    return ids, learned


def lesson_row(ids: np.ndarray, learned: np.ndarray, context_weight: float) -> Row:
    """The row of ids [n], of which `learned` [n] have the loss weight 1, the others `context_weight`."""
    weight = np.where(learned, 1.0, context_weight)
    return Row(ids=ids, trainable=weight > 0, columns={"loss_weight": weight})


def pair_rows(renderer: Renderer, pairs: Iterable[PreferencePair], max_tokens: int) -> tuple[list[Row], int]:
    """Rows 2i (chosen) and 2i + 1 (rejected), trainable on the answer alone; and how many pairs were dropped because
    they are longer than `max_tokens`."""
    every = list(two_rows(renderer, pairs, max_tokens))
    return [row for two in every for row in two], sum(not two for two in every)


def two_rows(renderer: Renderer, pairs: Iterable[PreferencePair], max_tokens: int) -> Iterator[list[Row]]:
    """Of each pair its rows, as `pair_rows`; none for one that is too long."""
    for i, pair in enumerate(pairs):
        prompt = prompt_ids(renderer, pair.prompt)
        two = [np.concatenate([prompt, renderer.turn(text)]) for text in (pair.chosen, pair.rejected)]
        fits = max(map(len, two)) <= max_tokens
        yield [Row(ids=ids, trainable=np.arange(len(ids)) >= len(prompt), group=i) for ids in two] if fits else []


def prompt_ids(renderer: Renderer, messages: Sequence[Message]) -> np.ndarray:
    """Ids of a conversation up to where the assistant writes next, tokenised in the same pieces as rollouts and
    demonstrations."""
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last < 0:
        return renderer.prompt(messages)
    head, _ = renderer.demonstration(messages[: last + 1])
    return np.concatenate([head, renderer.observation(messages[last + 1 :])])


def weighted(rows: list[Row], device: str) -> Batch:
    """A batch whose loss is the mean over tokens weighted by `loss_weight`."""
    batch = pack(rows, device=device)
    batch.totals["loss_tokens"] = float((batch.columns["loss_weight"] * batch.trainable).sum())
    return batch
