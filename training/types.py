"""The values that cross a boundary of `training`: segments, rollouts, groups, packed batches, statistics, terms.

Conventions, the same everywhere:
- A *packed* tensor is 1-D of length T: the tokens of all rows laid end to end, no padding.
- Entry t of a per-token tensor refers to token t as a *target*: logp[t] = log p(ids[t] | earlier tokens of its row).
  The first token of a row has no history: its logp is 0 and it is never trainable.
- An id below 0 is one of the tokens of a picture, and says which: two rows with different pictures differ wherever ids
  are compared (shared prefixes, the cache of prompts, a table of rollouts). A process holds the pixels once, in `HELD`
  (synth/pictures.py); only a vision-language model reads them (training/model/vision.py), and no loss trains on the ids.
- A row is one token sequence the model sees (a rollout, a demonstration, one side of a pair). Rows are never split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from synth.pictures import picture_key
from synth.types import Problem, Sampling, Score, Scored

Stop = Literal[
    "end", "length", "stop_string", "stop_id", "budget", "lost"
]  # lost: the engine lost it twice; such a segment has no tokens


PICTURE_TOKENS = 1 << 12  # the most that a picture may have


def picture_ids(name: str, tokens: int) -> np.ndarray:
    """The ids [tokens] int64 of a picture: -1 - (key x PICTURE_TOKENS + k). Raises ValueError for more tokens than an id can
    count."""
    if not 0 < tokens <= PICTURE_TOKENS:
        raise ValueError(f"a picture of {tokens} tokens: it may have 1 to {PICTURE_TOKENS}")
    return -1 - (picture_key(name) * PICTURE_TOKENS + np.arange(tokens, dtype=np.int64))


@dataclass(frozen=True)
class Shown:
    """A picture in a segment: the key of its name, its first token and the number of its tokens."""

    key: int
    start: int
    tokens: int


def shown_in(ids: np.ndarray) -> tuple[Shown, ...]:
    """The pictures in ids [n], in order."""
    at = np.flatnonzero(ids < 0)
    key, place = np.divmod(-1 - ids[at], PICTURE_TOKENS)
    begins = np.flatnonzero(place == 0)
    counts = np.diff(np.append(begins, len(at)))
    return tuple(Shown(int(key[i]), int(at[i]), int(n)) for i, n in zip(begins, counts, strict=True))


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Consecutive tokens written by one role.

    ids       [n] int64, the ids that were sampled or inserted; text is derived from them, never the reverse
    role      "model" or "env" (prompt, tool results)
    logp      [n] float32 log-probs of the sampling distribution; present exactly if role is "model"
    entropy   [n] float32 entropy in nats of that distribution; if the sampler computed it
    stop      why a model segment ended
    version   version of the weights that sampled it
    reward    reward of the turn that ends here, or None; an environment sets it as state["step_reward"]
    context_reset     for an env segment: the history was rewritten. What follows sees this segment and nothing before
                      it, and is a separate row
    extras    per-token arrays [n] that a piece needs
    experts   [tokens of its row up to its end, layers, k] int16: which experts the sampler's routers chose for each;
              only if they are to be replayed (training/model/router.py)
    speaker   if several policies play: the role of the environment that speaks
    policy    and the policy that played it
    """

    ids: np.ndarray
    role: Literal["model", "env"]
    logp: np.ndarray | None = None
    entropy: np.ndarray | None = None
    stop: Stop | None = None
    version: int | None = None
    sampling: Sampling | None = None
    reward: float | None = None
    context_reset: bool = False
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    experts: np.ndarray | None = None
    speaker: str = ""
    policy: str = ""

    def __post_init__(self) -> None:
        if (self.logp is not None) != (self.role == "model"):
            raise ValueError(
                f"a segment of role {self.role!r} {'has' if self.logp is not None else 'lacks'} log-probs: they exist where the model wrote"
            )
        if self.logp is not None and len(self.logp) != len(self.ids):
            raise ValueError(f"{len(self.ids)} ids but {len(self.logp)} log-probs in one segment")

    @property
    def media(self) -> tuple[Shown, ...]:
        """The pictures that it shows, in order, read from its ids; never their pixels."""
        return shown_in(self.ids)


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One played conversation: its problem, its group, its segments in order, its score, and its readable text."""

    problem: Problem
    group: str
    segments: tuple[Segment, ...]
    score: Score
    text: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> np.ndarray:
        return np.concatenate([s.ids for s in self.segments])

    @property
    def n_model(self) -> int:
        """Number of tokens the model wrote."""
        return sum(len(s.ids) for s in self.segments if s.role == "model")

    @property
    def turns(self) -> int:
        return sum(s.role == "model" for s in self.segments)

    @property
    def forks(self) -> tuple[tuple[Segment, ...], ...]:
        """The segments of each row: more than one if an environment rewrote the history. Model tokens keep their
        order."""
        cuts = [i for i, s in enumerate(self.segments) if s.context_reset and i]
        return tuple(self.segments[a:b] for a, b in zip([0, *cuts], [*cuts, len(self.segments)], strict=True))

    def spoken(self, speaker: str, policy: str) -> Rollout | None:
        """The rollout from the view of a policy in one of its roles; None if it did not speak. The text of others
        counts as environment text, its conversations end with its own turns, and the score is that of the role (the
        part `reward_ROLE`, if there is one)."""
        segments: list[Segment] = []
        for fork in self.forks:
            mine = [s.role == "model" and (s.speaker, s.policy) == (speaker, policy) for s in fork]
            last = max((i for i, own in enumerate(mine) if own), default=-1)
            segments += [
                s if own or s.role == "env" else Segment(ids=s.ids, role="env", context_reset=s.context_reset)
                for s, own in zip(fork[: last + 1], mine, strict=False)
            ]
        if not segments:
            return None
        score = self.score
        if isinstance(score, Scored) and f"reward_{speaker}" in score.parts:
            score = replace(score, value=score.parts[f"reward_{speaker}"])
        return replace(self, segments=tuple(segments), score=score)

    @property
    def off_policy(self) -> bool:
        """Whether it was not sampled by the policy under this prompt: a demonstration, a replay, an answer that had
        help."""
        return bool(self.info.get("off_policy", False))

    def each(self, name: str) -> np.ndarray:
        """[n_model] float64: "entropy", "logp" or an extra of the tokens that the model wrote. Raises ValueError if it
        was not stored."""
        model_segments = [s for s in self.segments if s.role == "model"]
        kept = [getattr(s, name) if name in ("entropy", "logp") else s.extras.get(name) for s in model_segments]
        if any(x is None for x in kept):
            raise ValueError(
                f"a piece needs {name!r} of the sampled tokens, and the rollouts of problem {self.problem.id} have none"
            )
        return np.concatenate([np.asarray(x, dtype=np.float64) for x in kept]) if kept else np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rollouts of one prompt (or of one role on one prompt). Identity is carried, never inferred from a stride.

    greedy   the answer of the policy at temperature 0, if a piece needs it ("greedy"): it is never trained on
    """

    id: str
    rollouts: tuple[Rollout, ...]
    greedy: Rollout | None = None

    def __post_init__(self) -> None:
        wrong = [r.group for r in self.rollouts if r.group != self.id]
        if wrong:
            raise ValueError(f"group {self.id!r} was given rollouts of group {wrong[0]!r}")

    @property
    def rewards(self) -> np.ndarray:
        """The scores [n] float64; NaN where a rollout is Unscorable."""
        return np.array([r.score.value if isinstance(r.score, Scored) else np.nan for r in self.rollouts])


# One entry per group, in order: float64 [n] rewards or per-rollout advantage (NaN = unscorable: excluded, counted).
Rewards = Sequence[np.ndarray]
# One entry per group, then one per rollout: a float for the whole rollout, or float64 [n_model] per model token.
Advantages = Sequence[Sequence[float | np.ndarray] | np.ndarray]


Per = Literal["token", "row"]


@dataclass(kw_only=True)
class Batch:
    """Rows packed end to end.

    ids         [T] int64
    position    [T] int64, position within the row
    row         [T] int64, index of the row
    lengths     list of R row lengths, summing to T
    trainable   [T] bool, tokens on which a loss may train (written by the model, not first of its row)
    group       [R] int64, index of the group (or pair) of each row
    columns     name -> tensor [T] or [R]: advantages, sampling_logp, reference, old, weight, and what pieces `add`
    per         name -> whether the column has a value per "token" [T] or per "row" [R]
    totals      denominators of the *whole* optimizer step, computed before any split: tokens, sequences, groups, pairs,
                constant, ...
    prefixes    the rows in the order of their ids, each with how many tokens it shares with the one before it there
                (training/learner/prefix_tree.py); empty if little is shared. A model may compute shared tokens once, so
                code that changes `ids` must empty this
    policy      the policy to which the rows belong, if there are several
    """

    ids: Tensor
    position: Tensor
    row: Tensor
    lengths: list[int]
    trainable: Tensor
    group: Tensor
    columns: dict[str, Tensor] = field(default_factory=dict)
    per: dict[str, Per] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    prefixes: list[tuple[int, int]] = field(default_factory=list)
    policy: str = ""

    @property
    def rows(self) -> int:
        return len(self.lengths)

    @property
    def row_tokens(self) -> Tensor:
        """[R] float, trainable tokens of each row (at least 1, so that it can divide)."""
        return self.row_sum(self.trainable.to(torch.float32)).clamp_min(1.0)

    def row_sum(self, values: Tensor) -> Tensor:
        """[R] sums of a per-token tensor [T] over each row, differentiable and deterministic."""
        out = torch.zeros(self.rows, dtype=values.dtype, device=values.device)
        return out.index_add(0, self.row, values)

    def add(self, name: str, values: Tensor, per: Per) -> None:
        """Add or replace a column: a value per "token" [T] or per "row" [R].

        Raises ValueError for another length.
        """
        expected = {"token": len(self.ids), "row": self.rows}[per]
        if len(values) != expected:
            raise ValueError(f"the column {name!r} has {len(values)} values: one per {per} would be {expected}")
        self.columns[name], self.per[name] = values, per

    def per_token(self, values: Tensor) -> Tensor:
        """A per-row tensor [R] spread over its tokens [T]."""
        return values.index_select(0, self.row)


@dataclass(kw_only=True)
class TokenStats:
    """Everything that a loss sees of the model: logp [T] and entropy [T] in nats, with gradient, 0 at the first token
    of each row.

    extras         [T] tensors from other readings of a model (a critic: value)
    distribution   a function that returns log p [N, V] of the N trainable targets in order: the only tensor of tokens x
                   vocabulary, made only for a piece that NEEDS "distribution"
    head           a function that returns the hidden states [N, d] before the N trainable targets and the head that
                   reads them, with gradient (training/lm_head)
    divergence     a function of its name and mix (training/lm_head/divergence.py) that returns the divergence [T] from
                   the teachers, with gradient; for a piece that NEEDS "teachers"
    """

    logp: Tensor
    entropy: Tensor | None = None
    extras: dict[str, Tensor] = field(default_factory=dict)
    distribution: Callable[[], Tensor] | None = None
    head: Callable[[], tuple[Tensor, Any]] | None = None
    divergence: Callable[[Any, float], Tensor] | None = None


Metrics = dict[str, tuple[Tensor | float, Tensor | float]]


@dataclass(kw_only=True)
class Terms:
    """What a loss returns: values [T], [R] or [pairs] to be *summed*, and the name of the total that divides the sum.

    A loss never divides by a batch quantity: the learner divides once by the global count `batch.totals[denominator]`,
    so that splitting a batch into micro-batches changes nothing. values must be exactly 0 where they do not count
    (use torch.where, never a product with a mask: 0 x inf is NaN). metrics: name -> (sum, count) of plain floats or
    0-d tensors, reduced once for the step; for a name that ends in `_max`, (largest, 1), of which the largest is kept.
    """

    values: Tensor
    denominator: str
    metrics: Metrics = field(default_factory=dict)
