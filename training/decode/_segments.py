"""Answers that are written piece by piece, with a choice at each: what decoders share that look at what is written before
it is all there.

Every piece reads the conversation so far again, and is charged for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from synth.types import seed_for
from training.decode._engine import VERDICT, Account, Ask, Decoded, Draw, Engine
from training.model.residual import Edit
from training.types import Segment

ENDS = re.compile(r"[.!?\n]\s*$")  # of a sentence


@dataclass(kw_only=True)
class Writing:
    """One answer under way.

    parts   the pieces that were taken, in order
    over    nothing more is written
    drawn   rounds of candidates so far: each has random numbers of its own
    hint    [n] ids behind the prompt that the model sees and the answer does not hold
    """

    ask: Ask
    account: Account
    parts: list[Segment] = field(default_factory=list)
    over: bool = False
    drawn: int = 0
    hint: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def ids(self) -> np.ndarray:
        """[n] of the answer so far."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *(p.ids for p in self.parts)])

    @property
    def context(self) -> np.ndarray:
        """[n] that the model reads before the next piece."""
        return np.concatenate([self.ask.prompt, self.hint, self.ids])

    def take(self, piece: Segment) -> None:
        """Go on with this piece; one that ended the turn, or filled it, is the last."""
        self.parts.append(piece)
        self.over = self.over or piece.stop != "length" or len(self.ids) >= self.ask.max_tokens

    def cut(self, n: int) -> None:
        """Take back all but the first n tokens."""
        kept: list[Segment] = []
        for part in self.parts:
            if n > 0:
                m = min(n, len(part.ids))
                short = {k: v[:m] for k, v in (("logp", part.logp), ("entropy", part.entropy)) if v is not None}
                kept.append(replace(part, ids=part.ids[:m], **short) if m < len(part.ids) else part)
                n -= m
        self.parts, self.over = kept, False

    def decoded(self) -> Decoded:
        last = self.parts[-1]
        entropy = [p.entropy for p in self.parts if p.entropy is not None]
        whole = Segment(
            ids=self.ids,
            role="model",
            logp=np.concatenate([p.logp for p in self.parts if p.logp is not None]),
            entropy=np.concatenate(entropy) if len(entropy) == len(self.parts) else None,
            stop=last.stop,
            version=last.version,
            sampling=last.sampling,
        )
        return Decoded(segment=whole, account=self.account)


def begun(asks: Sequence[Ask]) -> list[Writing]:
    return [Writing(ask=ask, account=Account(limit=ask.forward_tokens)) for ask in asks]


def continued(writings: Sequence[Writing], drawn: Sequence[Sequence[Segment]]) -> list[tuple[Account, np.ndarray]]:
    """Every candidate as (account, what the model would have read with it), those of one writing after the other."""
    return [
        (w.account, np.concatenate([w.context, c.ids])) for w, few in zip(writings, drawn, strict=True) for c in few
    ]


def options(
    engine: Engine,
    writings: Sequence[Writing],
    n: int,
    size: int,
    *,
    least: int = 2,
    reads: bool = False,
    temperature: float | None = None,
    edit: Callable[[Writing], Edit | None] = lambda writing: None,
) -> list[list[Segment]]:
    """Per writing up to n candidates of its next piece, of up to `size` tokens each.

    reads: some model will read the conversation with each candidate, out of the same budget. Where the budget has no
    room for `least` candidates and a plain rest behind them, the rest is drawn plainly, taken, and the list is empty.
    edit: what changes the residual stream of a draw. Raises ValueError for a budget that no answer fits.
    """
    engine.token_by_token("writes piece by piece")
    if n < 1 or size < 1:
        raise ValueError(f"{n} candidates of {size} tokens: both are numbers of 1 or more")
    batch: list[tuple[int, Draw]] = []
    rest: set[int] = set()
    for i, w in enumerate(writings):
        context, left = len(w.context), w.ask.max_tokens - len(w.ids)
        step = min(size, left)
        each = step + (context + step + VERDICT if reads else 0)
        k = int(min(n, (w.account.left - 2 * context - left) // each))
        if k < min(n, least):
            k, step = 1, int(min(left, w.account.left - context))
            rest.add(i)
            if step < 1 and not w.parts:
                engine.room(w.ask, w.account)
        if step < 1:
            w.over = True
            continue
        for j in range(k):
            seed = seed_for(w.ask.seed, "piece", w.drawn, j)
            batch.append((i, Draw(account=w.account, prompt=w.context, seed=seed, max_tokens=step, edit=edit(w))))
        w.drawn += 1
    out: list[list[Segment]] = [[] for _ in writings]
    for (i, _), segment in zip(batch, engine.sample([d for _, d in batch], temperature=temperature), strict=True):
        if i in rest:
            writings[i].take(segment)
            writings[i].over = True
        else:
            out[i].append(segment)
    return out


def finish(engine: Engine, writings: Sequence[Writing]) -> None:
    """Draw the rest of each answer plainly; none is open then."""
    size = max((w.ask.max_tokens for w in writings), default=1)
    for w, few in zip(writings, options(engine, writings, 1, size, least=1), strict=True):
        for piece in few:
            w.take(piece)
        w.over = True
