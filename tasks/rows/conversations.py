"""Conversations of the user's own for the stage `demonstrations`, in the layouts of `synth/demonstrations/imported.py`.

A further key of an entry: with `loss: last` only the assistant's last turn is learned; without it, all of its turns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from synth.demonstrations.imported import conversation
from synth.types import Demonstration, Quarantined
from tasks.core.errors import UserError, nearest
from tasks.rows import read
from tasks.runtime.stage import Stage

KEYS = ("loss",)
LOSS = ("all", "last")


def conversations(
    stage: Stage,
    files: Sequence[Any],
    protect: Sequence[str] = (),
    rows_per_shard: int = read.ROWS_PER_SHARD,
    imap: Callable[..., Iterator[Any]] = map,
) -> read.ReadRows:
    """The conversations of all files. imap: makes several shards at a time. Raises UserError for a file that yields none."""

    def loss(entry: read.Entry) -> str:
        chosen = entry.more.get("loss", "all")
        if chosen not in LOSS:
            raise UserError(f"{entry.where}: loss is {chosen!r}: {nearest(str(chosen), LOSS)}")
        return chosen

    return read.read(
        stage,
        files,
        partial(_made, stage.name),
        Demonstration,
        more=KEYS,
        loss=loss,
        protect=protect,
        rows_per_shard=rows_per_shard,
        alone=True,
        imap=imap,
    )


def _made(stage: str, entry: read.Entry, rows: Iterable[Any]) -> Iterator[tuple[str, Demonstration] | Quarantined]:
    for item in rows:
        if isinstance(item, Quarantined):
            yield item
            continue
        place, row = item
        try:
            messages = conversation(row)
        except ValueError as e:
            reason, _, evidence = str(e).partition(": ")
            if not re.fullmatch("[a-z_]+", reason) or not evidence:  # a sentence of a helper without a code
                reason, evidence = "not_messages", str(e)
            evidence = evidence.encode("utf-8", "replace").decode()
            yield Quarantined(id=place, stage=stage, reason=reason, evidence=evidence)
            continue
        split = read.split_for(entry, row, read.question(messages))
        yield place, Demonstration.make(problem=place, messages=messages, split=split)
