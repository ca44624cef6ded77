"""The values that cross a boundary of `synth`: problems, scores, preference pairs, decisions, chat messages.

All are frozen and keyword-only. They hold plain Python values (no arrays, no tensors), so that a row of a Parquet
table and a value of a type are the same thing: `to_row` and `from_row` convert between them, nested fields as JSON.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, Protocol, TypeVar


class UserError(ValueError):
    """A mistake in the user's files or settings. The command line prints the sentence, without a traceback, and exits
    with code 2."""


MANY = 50  # names that a sentence cannot list


def nearest(name: str, valid: Iterable[str]) -> str:
    """The end of an error sentence: "did you mean 'quantile'? (valid: grpo, quantile)"; without a near name, the list
    alone. Of more than MANY names the three nearest are given."""
    valid = sorted(valid)
    if len(valid) > MANY:
        three = sorted(
            difflib.get_close_matches(name, valid, n=3, cutoff=0.0), key=lambda v: sorted(v) != sorted(name)
        )  # swapped letters, the commonest slip, first
        return f"did you mean {three[0]!r}, {three[1]!r} or {three[2]!r}? (the nearest of {len(valid)})"
    close = difflib.get_close_matches(name.replace("-", "_"), valid, cutoff=0.5) or difflib.get_close_matches(
        name, valid, cutoff=0.5
    )
    swapped = [
        c for c in close if sorted(c) == sorted(name)
    ]  # the commonest slip, which difflib ranks no higher than a wrong letter
    shown = ", ".join(valid) if valid else "there is none"
    return f"did you mean {(swapped or close)[0]!r}? (valid: {shown})" if close else f"valid: {shown}"


SCHEMA_VERSION = 1  # of every row written by `to_row`; readers refuse another version with a sentence

Split = Literal["train", "valid", "test"]


canonical_json = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":")
).encode  # a value as one text


def digest(*parts: Any) -> str:
    """64 hex digits of SHA-256 over the canonical JSON of `parts`: the one way this project names content."""
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


class ListDigest:
    """`digest` of a list of texts that are added one by one: `digest([a, b])` is `name()` after `add(a)` and `add(b)`."""

    def __init__(self) -> None:
        self._hash, self._n = hashlib.sha256(b"[["), 0

    def add(self, text: str) -> None:
        self._hash.update(f"{',' if self._n else ''}{canonical_json(text)}".encode())
        self._n += 1

    def name(self) -> str:
        """64 hex digits."""
        whole = self._hash.copy()
        whole.update(b"]]")
        return whole.hexdigest()


def picture_name(height: int, width: int, rgb: bytes) -> str:
    """The name of a picture: 64 hex digits of SHA-256 of its size and its bytes, row by row, red, green and blue."""
    return hashlib.sha256(f"{height}x{width}".encode() + rgb).hexdigest()


def seed_for(*parts: Any) -> int:
    """A 63-bit seed hashed from (run seed, stage, family, split, index). Never `seed + i`: neighbours would overlap."""
    return int(digest(*parts)[:16], 16) >> 1


def split_of(root: str, *, valid: float = 0.1, test: float = 0.15) -> Split:
    """The split of a root entity or seed problem, decided by the hash of its name alone: siblings always share a
    split."""
    u = int(digest("split", root)[:12], 16) / 16**12
    return "test" if u < test else "valid" if u < test + valid else "train"


@dataclass(frozen=True, kw_only=True)
class Message:
    """One chat message. `role` is system, user, assistant or tool; `content` is text. media: the names (content hashes)
    of the pictures that it shows, one for each `<image>` of the text, in order."""

    role: str
    content: str
    media: tuple[str, ...] = ()

    @property
    def key(self) -> list[str]:
        """What names this message among others."""
        return [self.role, self.content, *self.media]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A question with a reference answer that a program verifies.

    id          content hash of (prompt, answer, verifier, args); made by `Problem.make`
    prompt      chat messages shown to the model
    answer      the reference answer as text
    verifier    name of a file in synth/verify
    args        keyword arguments of that verifier (JSON values): aliases, numbers, tolerance
    env         name of a file in training/env that hosts it ("single" = one answer, "search" = multi-turn with a search
                tool)
    family      where it comes from: "entity_tree", "countdown", ...
    difficulty  axis -> level, for curricula and for reports ("hops": 2)
    lineage     how it was made: root, facts, seed, code version
    split       of the root entity or seed problem
    """

    id: str
    prompt: tuple[Message, ...]
    answer: str
    verifier: str
    args: Mapping[str, Any] = field(default_factory=dict)
    env: str = "single"
    family: str
    difficulty: Mapping[str, float] = field(default_factory=dict)
    lineage: Mapping[str, Any] = field(default_factory=dict)
    split: Split

    @staticmethod
    def make(
        *,
        prompt: str | Sequence[Message],
        answer: str,
        verifier: str,
        args: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> Problem:
        messages = (Message(role="user", content=prompt),) if isinstance(prompt, str) else tuple(prompt)
        args = dict(args or {})
        name = digest([m.key for m in messages], answer, verifier, args)[:20]
        return Problem(id=name, prompt=messages, answer=answer, verifier=verifier, args=args, **rest)

    @property
    def seen(self) -> str:
        """The hash of what a model is shown: two problems with the same hash are the same, however they are scored."""
        return digest([m.key for m in self.prompt])[:20]

    @property
    def question(self) -> str:
        """The text of the last user message."""
        return next(m.content for m in reversed(self.prompt) if m.role == "user")


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A verdict that could be computed: `value` in [0, 1] for verifiers, any float for shaped rewards; `parts` by
    name."""

    value: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Unscorable:
    """No verdict: the reason as a code with a detail ("timeout: 2.0 s"). Never counted as 0."""

    reason: str


Score = Scored | Unscorable


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one cleaning step said of one pair. action: keep, weight, ask, remove or flip. score: the cleaner's own
    scale."""

    step: str
    action: Literal["keep", "weight", "ask", "remove", "flip"]
    reason: str
    score: float


@dataclass(frozen=True, kw_only=True)
class PreferencePair:
    """Two answers to one prompt; `chosen` is labelled better.

    id         content hash; made by `PreferencePair.make`
    prompt     chat messages up to the answers
    chosen, rejected   text of the next assistant turn
    source     generator or file that made it
    problem    id of the Problem it answers, or ""
    margin     verified score difference, or None where nothing verified it
    columns    columns for cleaners: scores, features, votes, planted error {"type", "span", "severity"}
    decisions  appended by each cleaner, never rewritten
    split      that of the problem
    """

    id: str
    prompt: tuple[Message, ...]
    chosen: str
    rejected: str
    source: str
    problem: str = ""
    margin: float | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    split: Split

    @staticmethod
    def make(*, prompt: Sequence[Message], chosen: str, rejected: str, source: str, **rest: Any) -> PreferencePair:
        prompt = tuple(prompt)
        name = digest([m.key for m in prompt], chosen, rejected, source)[:20]
        return PreferencePair(id=name, prompt=prompt, chosen=chosen, rejected=rejected, source=source, **rest)


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """A demonstration: the whole conversation that solves a problem. The assistant turns are the targets."""

    id: str
    problem: str
    messages: tuple[Message, ...]
    calls: int = 0
    detours: int = 0
    split: Split

    @staticmethod
    def make(*, problem: str, messages: Sequence[Message], **rest: Any) -> Demonstration:
        messages = tuple(messages)
        return Demonstration(
            id=digest(problem, [m.key for m in messages])[:20], problem=problem, messages=messages, **rest
        )


@dataclass(frozen=True, kw_only=True)
class Quarantined:
    """A row quarantined: where (stage), why (reason: a code such as "not_unique"), and the evidence as text. Never
    lost."""

    id: str
    stage: str
    reason: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How text is sampled; `seed` makes a sample reproducible.

    temperature   0 is greedy
    top_k         sample only from this many most likely tokens (0: all)
    top_p         sample only from the fewest most likely tokens with this share of the probability that top_k left (1:
                  all)
    min_p         sample only from tokens at least this many times as likely as the most likely one (0: all)
    stop          strings that end a turn; stop_ids: ids that do, beside the end-of-turn id. What ended it is the turn's
                  last
    choices       if given, a turn is exactly one of these texts

    Raises ValueError for invalid numbers.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    seed: int = 0
    min_p: float = 0.0
    stop_ids: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, fine, want in (
            ("temperature", 0 <= self.temperature < float("inf"), "0 (greedy) or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1 (1: no cut)"),
            ("top_k", self.top_k >= 0, "0 (no cut) or more"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 (no cut) to 1 (the likeliest tokens alone)"),
            ("max_tokens", self.max_tokens >= 1, "1 or more"),
            ("stop", all(self.stop), "strings that are not empty"),
            ("choices", all(self.choices), "texts that are not empty"),
        ):
            if not fine:
                raise ValueError(f"{name} of the sampling is {getattr(self, name)!r}; it must be {want}")


class Generate(Protocol):
    """A source of text: one completion for each conversation. `training.rollout` implements it; a test passes a
    lambda."""

    def __call__(self, conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]: ...


T = TypeVar("T")
_NESTED = {"prompt", "messages", "args", "difficulty", "lineage", "columns", "decisions"}


def to_row(value: Any) -> dict[str, Any]:
    """A flat dict for one Parquet row; nested fields become JSON text, and `schema_version` is added."""
    row: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for name in _names(type(value)):
        x = getattr(value, name)
        row[name] = json.dumps(x, default=_as_json, ensure_ascii=False, sort_keys=True) if name in _NESTED else x
    return row


@cache
def _names(cls: type) -> tuple[str, ...]:
    """Of the fields of a dataclass: `fields` makes its list anew for each row."""
    return tuple(f.name for f in fields(cls))


def _as_json(value: Any) -> dict[str, Any]:
    """The fields of a nested value; a message without pictures has no field for them."""
    out = {name: getattr(value, name) for name in _names(type(value))}
    if isinstance(value, Message) and not value.media:
        del out["media"]
    return out


def from_row(cls: type[T], row: Mapping[str, Any]) -> T:
    """The inverse of `to_row`; a list, as Parquet and JSON give, is a tuple. Raises ValueError for a row of another schema version."""
    if row.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"a {cls.__name__} row has schema version {row.get('schema_version')!r}, this code reads {SCHEMA_VERSION}"
        )
    out: dict[str, Any] = {}
    for name in _names(cls):
        x = row[name]
        if name in _NESTED:
            x = json.loads(x)
            if name in ("prompt", "messages"):
                x = tuple(Message(**{**m, "media": tuple(m.get("media", ()))}) for m in x)
            elif name == "decisions":
                x = tuple(Decision(**d) for d in x)
        elif isinstance(x, float) and math.isnan(x):
            x = None
        elif isinstance(x, list):
            x = tuple(x)
        out[name] = x
    return cls(**out)
