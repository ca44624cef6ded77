"""Known faults, planted among preference pairs whose truth is verified: swapped labels, exact copies, near copies,
contradictions.

They make the effect of a cleaner measurable, which published cleaning benchmarks cannot do because they lack ground
truth. Everything that would reveal a fault (the verified margin, the type and span of the error) is removed from every
pair, faulty or not, and stored with the fault in a separate table of truths that no cleaner reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from synth.types import Message, PreferencePair

COPIES = ("exact", "near", "contradiction")


@dataclass(frozen=True, kw_only=True)
class Planted:
    """The truth about one pair.

    id       of the pair            flip    whether its sides were swapped
    copy     "" or one of COPIES    of      id of the pair that it copies, or ""
    error    type of the injected error         margin   verified score(chosen) - score(rejected) as labelled: negative
             where flipped
    """

    id: str
    flip: bool
    copy: str = ""
    of: str = ""
    error: str = ""
    margin: float = 1.0


def label_noise(
    pairs: Sequence[PreferencePair],
    rng: Random,
    *,
    flip: float = 0.1,
    exact: float = 0.02,
    near: float = 0.02,
    contradiction: float = 0.01,
) -> tuple[list[PreferencePair], list[Planted]]:
    """The pairs with faults planted, shuffled, and the truth about each, in the same order.

    flip    share of all pairs whose sides are swapped, uniformly at random
    exact, near, contradiction   further pairs, as shares of `pairs`: the same pair from another source; the same with a
    reworded prompt;
            the same with its sides swapped (its label is wrong where the other's is right)

    Raises ValueError for a share outside [0, 1] (flip: below 1/2, or the majority of labels would be wrong).
    """
    shares = {"exact": exact, "near": near, "contradiction": contradiction}
    for name, share in {"flip": flip, **shares}.items():
        if not 0 <= share <= 1 or (name == "flip" and share >= 0.5):
            raise ValueError(
                f"label_noise: the share {name} = {share} must lie in [0, {'0.5)' if name == 'flip' else '1]'}"
            )
    flipped = set(rng.sample(range(len(pairs)), round(flip * len(pairs))))
    rows = []
    for i, pair in enumerate(pairs):
        rows.append(_row(_bare(pair, swap=i in flipped), pair, i in flipped))
    sources = rng.sample(
        range(len(pairs)), min(len(pairs), sum(round(share * len(pairs)) for share in shares.values()))
    )
    for kind, share in shares.items():
        for _ in range(round(share * len(pairs))):
            if not sources:
                break
            i = sources.pop()
            first, swap = rows[i][0], (i in flipped) != (kind == "contradiction")
            prompt = _reworded(pairs[i].prompt) if kind == "near" else pairs[i].prompt
            twin = replace(pairs[i], source=f"{pairs[i].source}/again", prompt=prompt)
            rows.append(_row(_bare(twin, swap=swap), pairs[i], swap, copy=kind, of=first.id))
    rng.shuffle(rows)
    return [pair for pair, _ in rows], [truth for _, truth in rows]


def _bare(pair: PreferencePair, *, swap: bool) -> PreferencePair:
    """The pair as an annotator would deliver it: without verified margin and error, and with a new id."""
    return PreferencePair.make(
        prompt=pair.prompt,
        chosen=pair.rejected if swap else pair.chosen,
        rejected=pair.chosen if swap else pair.rejected,
        source=pair.source,
        problem=pair.problem,
        columns={k: v for k, v in pair.columns.items() if k != "error"},
        split=pair.split,
    )


def _row(
    bare: PreferencePair, pair: PreferencePair, flip: bool, copy: str = "", of: str = ""
) -> tuple[PreferencePair, Planted]:
    margin = 1.0 if pair.margin is None else pair.margin
    error = pair.columns.get("error", {}).get("type", "")
    return bare, Planted(id=bare.id, flip=flip, copy=copy, of=of, error=error, margin=-margin if flip else margin)


def _reworded(prompt: Sequence[Message]) -> tuple[Message, ...]:
    """The last user message in another case, with a word before it."""
    at = max(i for i, m in enumerate(prompt) if m.role == "user")
    return tuple(replace(m, content=f"Please: {m.content.lower()}") if i == at else m for i, m in enumerate(prompt))
