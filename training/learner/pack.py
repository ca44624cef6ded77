"""Packs rows of tokens end to end into one `Batch`, and splits it into micro-batches without changing the gradient."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from training.learner.prefix_tree import Path, part, paths, prefixes, shared
from training.model.attention import Continued, PackedRows, SharedRows
from training.types import Advantages, Batch, Group, Per, Rollout


@dataclass(frozen=True, kw_only=True)
class Row:
    """One token sequence: ids [n] int64, trainable [n] bool, the index of its group or pair, per-token columns [n] and
    scalars by name; experts [first tokens, layers, k] that the sampler's routers chose, if they are replayed."""

    ids: np.ndarray
    trainable: np.ndarray
    group: int = 0
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    experts: np.ndarray | None = None


def count(rows: Sequence[Row]) -> dict[str, float]:
    """The denominators of a step: trainable tokens (never a row's first token), rows that have any, groups, pairs of
    rows, and 1."""
    targets = [int(np.count_nonzero(r.trainable[1:])) for r in rows]
    return {
        "tokens": float(sum(targets)),
        "sequences": float(sum(n > 0 for n in targets)),
        "groups": float(len({r.group for r in rows})),
        "pairs": len(rows) / 2,
        "constant": 1.0,
    }


def pack(rows: Sequence[Row], *, device: str = "cpu", totals: Mapping[str, float] | None = None) -> Batch:
    """Lay rows end to end and count the denominators of the step (`totals`: they may count more rows than these, if
    rows that cannot change the gradient were left out). Raises ValueError for an empty batch or a row under two
    tokens."""
    if not rows:
        raise ValueError(
            "a batch of no rows cannot be packed: every group was filtered out; loosen the filters or raise prompts_per_step"
        )
    lengths = [len(r.ids) for r in rows]
    if min(lengths) < 2:
        raise ValueError("a row of fewer than two tokens has no target")
    trainable = np.concatenate([r.trainable for r in rows]).astype(bool)
    starts = np.cumsum([0, *lengths[:-1]])
    trainable[starts] = False  # the first token of a row has no history
    names = sorted({k for r in rows for k in r.columns})
    width = {k: np.shape(c)[1:] for r in rows for k, c in r.columns.items()}  # numbers per token, () for one
    columns = {
        k: torch.from_numpy(
            np.concatenate(
                [np.asarray(r.columns.get(k, np.zeros((len(r.ids), *width[k]))), dtype=np.float32) for r in rows]
            )
        )
        for k in names
    }
    scalar_names = sorted({k for r in rows for k in r.scalars})
    columns |= {k: torch.tensor([r.scalars.get(k, 0.0) for r in rows], dtype=torch.float32) for k in scalar_names}
    per: dict[str, Per] = {**dict.fromkeys(names, "token"), **dict.fromkeys(scalar_names, "row")}
    if known := [r.experts for r in rows if r.experts is not None]:
        columns["experts"], per["experts"] = torch.from_numpy(_experts(rows, known[0].shape[1:])), "token"
    batch = Batch(
        ids=torch.from_numpy(np.concatenate([r.ids for r in rows]).astype(np.int64)),
        position=torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])),
        row=torch.from_numpy(np.repeat(np.arange(len(rows)), lengths)),
        lengths=lengths,
        trainable=torch.from_numpy(trainable),
        group=torch.tensor([r.group for r in rows]),
        columns=columns,
        per=per,
        totals=dict(count(rows) if totals is None else totals),
        prefixes=prefixes([r.ids for r in rows], [r.group for r in rows]),
    )
    return to(batch, device)


def _experts(rows: Sequence[Row], shape: tuple[int, ...]) -> np.ndarray:
    """[T, layers, k]: the experts of each row, and -1 for tokens whose experts are unknown."""
    out = np.full((sum(len(r.ids) for r in rows), *shape), -1, dtype=np.int16)
    start = 0
    for r in rows:
        if r.experts is not None:
            out[start : start + len(r.experts)] = r.experts
        start += len(r.ids)
    return out


def batch_paths(batch: Batch) -> list[Path]:
    """For each row, the pieces of earlier rows with which it begins; they are computed with those rows."""
    return paths(batch.prefixes, batch.lengths, batch.group.tolist()) if batch.prefixes else [()] * batch.rows


def shared_tokens(batch: Batch) -> list[int]:
    """For each row, how many of its first tokens are computed with earlier rows."""
    return [shared(path) for path in batch_paths(batch)]


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The tokens of a batch as a model reads them, with shared prefixes once: ids, position [S], how they attend,
    `place` [T] (the index among the S of the state of each of the batch's tokens; None: the same index), and the
    experts [S, layers, k] that are replayed, if any."""

    ids: Tensor
    position: Tensor
    rows: PackedRows | SharedRows
    place: Tensor | None = None
    experts: Tensor | None = None

    def at(self, index: Tensor) -> Tensor:
        """The indices in the stream of tokens of the batch."""
        return index if self.place is None else self.place.index_select(0, index)

    @staticmethod
    def of(batch: Batch) -> Stream:
        device, begins, experts = batch.ids.device, batch_paths(batch), batch.columns.get("experts")
        if not any(begins):
            rows = PackedRows(batch.lengths, device)
            return Stream(ids=batch.ids, position=batch.position, rows=rows, experts=experts)
        starts = [0, *itertools.accumulate(batch.lengths)]
        own = [starts[i] + shared(path) for i, path in enumerate(begins)]  # where a row's own tokens begin
        whole = [i for i, path in enumerate(begins) if not path]
        after = [i for i, path in enumerate(begins) if path]
        index = torch.cat([torch.arange(own[i], starts[i + 1]) for i in (*whole, *after)])
        place = torch.empty(starts[-1], dtype=torch.long)
        place[index] = torch.arange(len(index))
        continued: list[Continued] = []
        for i in after:
            pieces = []
            for row, lo, hi in begins[i]:
                begun = int(place[starts[row] + lo])
                place[starts[i] + lo : starts[i] + hi] = torch.arange(begun, begun + hi - lo)
                pieces.append((begun, hi - lo))
            continued.append((tuple(pieces), starts[i + 1] - own[i]))
        chosen = index.to(device)
        return Stream(
            ids=batch.ids.index_select(0, chosen),
            position=batch.position.index_select(0, chosen),
            rows=SharedRows([batch.lengths[i] for i in whole], continued, device),
            place=place.to(device),
            experts=None if experts is None else experts.index_select(0, chosen),
        )


def to(batch: Batch, device: str) -> Batch:
    """The batch with its tensors moved to a device, in place."""
    for name in ("ids", "position", "row", "trainable", "group"):
        setattr(batch, name, getattr(batch, name).to(device))
    batch.columns = {k: v.to(device) for k, v in batch.columns.items()}
    return batch


def select(batch: Batch, lo: int, hi: int) -> Batch:
    """Rows lo..hi-1 of a batch.

    Raises ValueError for a column that nobody declared (`Batch.add`), or of another length than declared.
    """
    starts = np.cumsum([0, *batch.lengths])
    a, b, total = int(starts[lo]), int(starts[hi]), int(starts[-1])
    columns = {}
    for name, x in batch.columns.items():
        per = batch.per.get(name)
        if per is None:
            raise ValueError(
                f"the column {name!r} does not say whether it has a value per token or per row: add it by "
                f"batch.add({name!r}, values, 'token') or 'row', in the place of batch.columns[{name!r}] = values"
            )
        expected = total if per == "token" else batch.rows
        if len(x) != expected:
            raise ValueError(f"the column {name!r} has {len(x)} values: one per {per} would be {expected}")
        columns[name] = x[a:b] if per == "token" else x[lo:hi]
    return Batch(
        ids=batch.ids[a:b],
        position=batch.position[a:b],
        row=batch.row[a:b] - lo,
        lengths=batch.lengths[lo:hi],
        trainable=batch.trainable[a:b],
        group=batch.group[lo:hi],
        columns=columns,
        per=batch.per,
        totals=batch.totals,
        prefixes=part(batch.prefixes, lo, hi),
    )


def split(batch: Batch, max_tokens: int, rows_per_unit: int = 1) -> Iterator[Batch]:
    """Micro-batches of at most `max_tokens` computed tokens where possible; `rows_per_unit` consecutive rows (2 for
    pairs) are never split. Rows that share a prefix are split where the least has to be computed again.

    Denominators stay those of the whole batch, so the sum of the parts' gradients is the gradient of the whole.
    """
    begun = shared_tokens(batch)
    units = [range(lo, min(lo + rows_per_unit, batch.rows)) for lo in range(0, batch.rows, rows_per_unit)]
    tokens = [sum(batch.lengths[i] - begun[i] for i in unit) for unit in units]
    for lo, hi in _parts(tokens, [begun[unit[0]] for unit in units], max_tokens):
        some = select(batch, units[lo][0], units[hi - 1][-1] + 1)
        # the prefix of a row may be in another part: then this part has more to compute than was counted
        if hi - lo > 1 and some.prefixes and sum(some.lengths) - sum(shared_tokens(some)) > max_tokens:
            yield from split(replace(some, prefixes=[]), max_tokens, rows_per_unit)
        else:
            yield some


def dealt(batch: Batch, max_tokens: int, rows_per_unit: int, processes: int) -> list[tuple[int, Batch]]:
    """The micro-batches of `split` in order, each with the rank of the process that computes it. The assignment depends
    only on the batch and on the number of processes. The batch is cut so finely that each process has some; then the
    largest part goes first, each to the process that has the least."""
    share = math.ceil((len(batch.ids) - sum(shared_tokens(batch))) / processes)
    parts = list(split(batch, min(max_tokens, share), rows_per_unit))
    load, owners = [0] * processes, [0] * len(parts)
    for i in sorted(range(len(parts)), key=lambda i: -len(parts[i].ids)):
        owners[i] = min(range(processes), key=load.__getitem__)
        load[owners[i]] += len(parts[i].ids)
    return list(zip(owners, parts, strict=True))


def _parts(tokens: Sequence[int], begun: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Units lo to hi - 1 of each part. tokens: the tokens that a unit adds to those before it; begun: the prefix of its
    first row, which is computed again if a part begins with it. Among the splits in which no part of several units has
    more than `most` tokens, it takes the one that computes the least; among equals the one whose parts are filled in
    order."""
    ends = [0, *itertools.accumulate(tokens)]
    if ends[-1] <= most:  # the case of most steps; the code below looks at every pair of cuts that fits
        return [(0, len(tokens))]
    if not any(begun):
        out, lo = [], 0
        for hi in range(1, len(tokens)):
            if ends[hi + 1] - ends[lo] > most:
                out.append((lo, hi))
                lo = hi
        return [*out, (lo, len(tokens))]
    # for the units from lo on: the fewest tokens computed again, the fewest parts, and where the first part ends
    best: list[tuple[int, int, int]] = [(0, 0, 0)] * (len(tokens) + 1)
    for lo in reversed(range(len(tokens))):
        ways = []
        for hi in range(lo + 1, len(tokens) + 1):
            if hi - lo > 1 and begun[lo] + ends[hi] - ends[lo] > most:
                break
            again, parts, _ = best[hi]
            ways.append((again + (begun[hi] if hi < len(tokens) else 0), parts + 1, -hi))
        again, parts, hi = min(ways)
        best[lo] = again, parts, -hi
    out, lo = [], 0
    while lo < len(tokens):
        out.append((lo, best[lo][2]))
        lo = best[lo][2]
    return out


def rollout_row(rollout: Rollout, advantages: float | np.ndarray, group: int) -> Row:
    """The row of one rollout: its sampled ids, advantage on model tokens, sampling log-probs; env tokens are never
    trainable.

    Also turn (1, 2, ... on the model's tokens) and, if the environment rewards turns, turn_reward. Columns of the whole
    row: reward (its score as the environment gave it), off_policy (1 where it is `Rollout.off_policy`).

    Raises ValueError for a rollout whose history was rewritten, which is several rows (`rollout_rows` makes them).
    """
    if len(rollout.forks) > 1:
        raise ValueError(
            f"the environment {rollout.problem.env!r} rewrites the history, so a rollout of it is {len(rollout.forks)} rows: a critic, a group transform "
            "or a piece that reads a rollout as one row cannot be used with it; leave it out, or choose another environment"
        )
    ids = rollout.ids
    model = np.concatenate([np.full(len(s.ids), s.role == "model") for s in rollout.segments])
    columns = {name: np.zeros(len(ids), dtype=np.float64) for name in ("advantages", "sampling_logp")}
    columns["advantages"][model] = advantages
    columns["sampling_logp"][model] = rollout.each("logp")
    for name in sorted(
        {k for s in rollout.segments for k in (*s.extras, *(("sampling_entropy",) if s.entropy is not None else ()))}
    ):
        width = next((np.shape(s.extras[name])[1:] for s in rollout.segments if name in s.extras), ())
        columns[name] = np.concatenate([_extra(s, name, width) for s in rollout.segments])
    turn = np.cumsum([s.role == "model" for s in rollout.segments])
    columns["turn"] = np.concatenate(
        [np.full(len(s.ids), t * (s.role == "model")) for s, t in zip(rollout.segments, turn, strict=True)]
    )
    if any(s.reward is not None for s in rollout.segments):
        columns["turn_reward"] = np.concatenate([np.full(len(s.ids), s.reward or 0.0) for s in rollout.segments])
    value = getattr(rollout.score, "value", 0.0)
    return Row(
        ids=ids,
        trainable=model,
        group=group,
        columns=columns,
        scalars={"reward": value, "off_policy": float(rollout.off_policy)},
        experts=next((s.experts for s in reversed(rollout.segments) if s.experts is not None), None),
    )


def _extra(segment, name: str, width: tuple[int, ...]) -> np.ndarray:
    value = segment.entropy if name == "sampling_entropy" else segment.extras.get(name)
    return np.zeros((len(segment.ids), *width)) if value is None else np.asarray(value, dtype=np.float64)


def rollout_rows(groups: Sequence[Group], advantages: Advantages) -> list[Row]:
    """Rows of all scorable rollouts of the groups, in order. A rollout with NaN advantage is left out (it was unscorable);
    one whose history was rewritten is a row for each history, which counts as a separate sequence with the advantage of
    the whole rollout."""
    return [
        row
        for g, (group, group_advantages) in enumerate(zip(groups, advantages, strict=True))
        for r, c in zip(group.rollouts, group_advantages, strict=True)
        if not np.any(np.isnan(c)) and r.n_model
        for row in _forked(r, c, g)
    ]


def _forked(rollout: Rollout, advantages: float | np.ndarray, group: int) -> Iterator[Row]:
    """A row for each history that the model wrote in; the count of turns continues."""
    if len(rollout.forks) == 1:
        yield rollout_row(rollout, advantages, group)
        return
    at, turn = 0, 0
    for segments in rollout.forks:
        part = replace(rollout, segments=(replace(segments[0], context_reset=False), *segments[1:]))
        if n := part.n_model:
            row = rollout_row(part, advantages if np.ndim(advantages) == 0 else advantages[at : at + n], group)  # type: ignore[index]
            yield replace(row, columns={**row.columns, "turn": row.columns["turn"] + turn * row.trainable})
        at, turn = at + n, turn + part.turns
