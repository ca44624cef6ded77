"""Preference pairs from other people's rows: four layouts, recognised by their columns.

    pairs      chosen, rejected, and a prompt; without a prompt, the turns with which both sides begin are the prompt
    ratings    a prompt, a list of answers, and their ratings (or answers that are objects with a rating)
    sides      a prompt, two answers, and which is better (or how much: a negative `preference_strength` is for the
               first)
    votes      as sides, with {annotator: verdict} or [{annotator, verdict}] in a cell, or one row per annotator

Answers and prompts are texts, or chat messages (`role`/`content`, or `from`/`value`). Columns that cleaners read
(scores, votes, tags, ...;
`synth/preferences/cleaners/_columns.py`) come along under their names. A row that cannot become a pair is quarantined
with a reason, never repaired by guessing: not_an_object, missing_columns, not_columns, empty_prompt, empty_side,
identical_sides, too_long, not_unicode, not_messages, unknown_verdict, tie, unknown_rating, equal_ratings, few_answers.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from synth.types import Message, PreferencePair, Quarantined

Row = tuple[str, Any]  # (place such as "FILE line 3", the row)
Layout = Literal["pairs", "ratings", "sides"]

PROMPT = ("prompt", "question", "instruction", "query", "input", "context", "messages", "conversation", "conversations")
CHOSEN = ("chosen", "chosen_response", "preferred", "accepted")
REJECTED = ("rejected", "rejected_response", "dispreferred")
ANSWERS = ("responses", "completions", "generations", "answers", "candidates")
RATINGS = ("ratings", "scores", "overall_scores", "rating", "score", "overall_score", "overall-score")
TEXT = ("response", "text", "content", "answer", "completion", "output")
SIDES = tuple(
    (f"{word}{a}", f"{word}{b}")
    for a, b in (("_a", "_b"), ("_1", "_2"), ("_0", "_1"), ("1", "2"), ("A", "B"))
    for word in ("response", "answer", "output", "completion", "option", "conversation")
)
STRENGTH = ("preference_strength", "overall_preference")  # how much better the second side is, as in HelpSteer2 and 3
VERDICT = ("votes", "preference", "winner", "label", "better", "better_response_id", "verdict", "choice", *STRENGTH)
ANNOTATOR = ("annotator", "annotator_id", "judge", "worker", "worker_id", "rater")
CARRIED = ("scores", "ifd", "votes", "both_orders", "out_of_fold", "anchor", "tags", "features", "group", "annotator")
TIES = {"tie", "ties", "both", "equal", "same", "neither", "none", "tie (bothbad)", "both_bad", "bothbad", "0.5", ""}
_NUMBER = re.compile(r"\s*(-?\d+(?:\.\d+)?)(?![\w.])")
_TURN = re.compile(r"\n\n(Human|Assistant): ?")


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How rows become pairs.

    name       of the file or dataset: it begins every id and message          rename   {our name: the column's name}
    scale      words of a rating scale, the worst first, if ratings are words
    ratings    "best_worst": one pair of each prompt; "all": one of every two answers that are rated differently
    limit      characters of a side or a prompt; a longer one is quarantined as too_long
    """

    name: str
    rename: Mapping[str, str] = field(default_factory=dict)
    scale: tuple[str, ...] = ()
    ratings: Literal["best_worst", "all"] = "best_worst"
    limit: int = 200_000

    def layout(self, columns: Sequence[str]) -> Layout:
        """Raises ValueError with the list of columns if no layout fits, or if a renamed column is missing."""
        missing = sorted(set(self.rename.values()) - set(columns))
        if missing:
            raise ValueError(
                f"{self.name} has no column {missing[0]!r} (it has {_listed(columns)}): fix the name that was given for it"
            )
        have = {*columns, *self.rename}
        if _first(have, CHOSEN) and _first(have, REJECTED):
            return "pairs"
        if _sides(have) and _first(have, PROMPT) and _first(have, VERDICT):
            return "sides"
        if _first(have, ANSWERS) and _first(have, PROMPT):
            return "ratings"
        raise ValueError(
            f"{self.name} has the columns {_listed(columns)}, which make no pairs: needed are chosen and rejected (with a prompt), or "
            f"prompt, responses and ratings, or prompt, response_a, response_b and preference (or votes); name yours as chosen=COLUMN"
        )

    def pairs(self, rows: Iterable[Row | Quarantined]) -> Iterator[PreferencePair | Quarantined]:
        """Every row becomes pairs or is quarantined, in order; rows of several annotators about one pair come together,
        at the end.

        Raises ValueError where the columns of the first row fit no layout, or where not one rating could be read as a
        number.
        """
        seen = Seen()
        yield from self.each(rows, seen)
        yield from self.end(seen)

    def each(self, rows: Iterable[Row | Quarantined], seen: Seen) -> Iterator[PreferencePair | Quarantined]:
        """As `pairs`, of some rows of a file: `seen` is what those before them say, and is told of these; `end` follows the last."""
        for item in rows:
            if isinstance(item, Quarantined):
                yield item
                continue
            place, row = item
            if not isinstance(row, Mapping):
                yield self._aside(place, "not_an_object", f"{type(row).__name__}: {str(row)[:200]}")
                continue
            row = {**row, **{ours: row[theirs] for ours, theirs in self.rename.items() if theirs in row}}
            layout = seen.layout = seen.layout or self.layout(list(row))
            try:
                if layout == "sides" and _value(row, ANNOTATOR) is not None:
                    seen.votes.add(place, row, *self._sides(row))
                    pairs = []
                elif layout == "sides":
                    pairs = [self._voted(place, row, *self._sides(row))]
                elif layout == "ratings":
                    pairs = list(self._rated(place, row))
                    seen.rated += 1
                else:
                    pairs = [self._pair(place, row, *self._labelled(row))]
            except _Rejected as fault:
                if fault.reason == "unknown_rating":
                    seen.words[fault.evidence] += 1
                yield self._aside(place, fault.reason, fault.evidence)
                continue
            yield from pairs

    def end(self, seen: Seen) -> Iterator[PreferencePair | Quarantined]:
        """What all rows together say. Raises ValueError where not one rating could be read as a number."""
        if seen.words and not seen.rated:
            told = ", ".join(repr(w) for w, _ in seen.words.most_common(8))
            raise ValueError(
                f"{self.name}: no rating is a number (seen: {told}): give the words of the scale, the worst first, as scale"
            )
        for place, row, prompt, two, cast in seen.votes.groups():
            try:
                yield self._voted(place, row, prompt, two, cast)
            except _Rejected as fault:
                yield self._aside(place, fault.reason, fault.evidence)

    # --- the layouts
    # -----------------------------------------------------------------------------------------------------

    def _labelled(self, row: Mapping[str, Any]) -> tuple[tuple[Message, ...], str, str]:
        chosen, rejected = _value(row, CHOSEN), _value(row, REJECTED)
        prompt = _asked(row)
        if isinstance(chosen, list) and isinstance(rejected, list):
            a, b = _messages(chosen), _messages(rejected)
            begin = _common(a, b)
            if prompt is None or begin:
                prompt = (*(prompt or ()), *begin) if prompt is None or begin[: len(prompt)] != prompt else begin
            a, b = a[len(begin) :], b[len(begin) :]
            if len(a) != 1 or len(b) != 1:
                raise _Rejected(
                    "not_messages",
                    f"after {len(begin)} turns in common {len(a)} and {len(b)} are left: one of each is needed",
                )
            return prompt, a[0].content, b[0].content
        if (
            prompt is None and isinstance(chosen, str) and isinstance(rejected, str)
        ):  # the transcripts of Anthropic's HH
            a, b = _transcript(chosen), _transcript(rejected)
            begin = _common(a, b)
            if not begin or len(a) != len(begin) + 1 or len(b) != len(begin) + 1:
                raise _Rejected(
                    "empty_prompt",
                    f"no prompt, and the two sides begin with {len(begin)} turns in common: {chosen[:200]!r}",
                )
            return begin, a[-1].content, b[-1].content
        return prompt or (), _text(chosen), _text(rejected)

    def _rated(self, place: str, row: Mapping[str, Any]) -> Iterator[PreferencePair | Quarantined]:
        answers = _value(row, ANSWERS)
        if not isinstance(answers, list) or len(answers) < 2:
            raise _Rejected("few_answers", f"{answers!r}"[:200])
        ratings = _value(row, RATINGS)
        if not isinstance(ratings, list):
            ratings = [_value(a, RATINGS) if isinstance(a, Mapping) else None for a in answers]
        if len(ratings) != len(answers):
            raise _Rejected("few_answers", f"{len(answers)} answers and {len(ratings)} ratings")
        texts, points = (
            [_text(_value(a, TEXT) if isinstance(a, Mapping) else a) for a in answers],
            [self._points(r) for r in ratings],
        )
        best = sorted(range(len(texts)), key=lambda i: -points[i])
        chosen = [(i, j) for i in best for j in best if points[i] > points[j]]
        if not chosen:
            raise _Rejected("equal_ratings", f"all {len(points)} answers are rated {points[0]:g}")
        for i, j in chosen if self.ratings == "all" else [(best[0], best[-1])]:
            extra = {"scores": {"rating": [points[i], points[j]]}}
            try:
                yield self._pair(
                    f"{place}, answers {i + 1} and {j + 1}", row, _asked(row) or (), texts[i], texts[j], extra
                )
            except _Rejected as fault:
                yield self._aside(f"{place}, answers {i + 1} and {j + 1}", fault.reason, fault.evidence)

    def _points(self, rating: Any) -> float:
        if isinstance(rating, int | float) and not isinstance(rating, bool) and not math.isnan(rating):
            return float(rating)
        word = str(rating).strip().casefold()
        if word in (scale := [w.casefold() for w in self.scale]):
            return float(scale.index(word))
        if isinstance(rating, str) and not scale and (match := _NUMBER.match(rating)):
            return float(match[1])
        raise _Rejected("unknown_rating", str(rating)[:60])

    def _sides(self, row: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[str, str], dict[str, int]]:
        """(prompt, two answers, annotator -> 1 for the first, -1 for the second, 0 for neither)."""
        names, column = _sides(row), _first(row, VERDICT)
        if not names or not column:
            raise _Rejected(
                "missing_columns", f"the row has {_listed(list(row))}: two answers and a verdict are needed"
            )
        prompt = _asked(row) or ()
        both = [row[n] for n in names]
        if all(isinstance(x, list) for x in both):
            a, b = _messages(both[0]), _messages(both[1])
            begin = _common(a, b)
            if len(a) != len(begin) + 1 or len(b) != len(begin) + 1:
                raise _Rejected(
                    "not_messages",
                    f"conversations of {len(a)} and {len(b)} turns have {len(begin)} in common, not all but one",
                )
            prompt, both = begin, [a[-1].content, b[-1].content]
        given = row[column]
        if isinstance(given, Mapping):
            cast = {str(k): _verdict(v, names, column) for k, v in given.items()}
        elif isinstance(given, list):
            named = [
                (_value(v, ANNOTATOR) if isinstance(v, Mapping) else None, _value(v, ("vote", *VERDICT))) for v in given
            ]
            cast = {str(i if who is None else who): _verdict(v, names, column) for i, (who, v) in enumerate(named)}
        else:
            cast = {str(_value(row, ANNOTATOR) or "label"): _verdict(given, names, column)}
        return prompt, (_text(both[0]), _text(both[1])), cast

    def _voted(
        self,
        place: str,
        row: Mapping[str, Any],
        prompt: tuple[Message, ...],
        two: tuple[str, str],
        cast: Mapping[str, int],
    ) -> PreferencePair:
        """The side with more votes is chosen; with a tie the first side stays chosen, for a cleaner that weights
        annotators."""
        if not any(cast.values()):
            raise _Rejected("tie", f"{len(cast)} verdicts, none for either side")
        first = sum(cast.values()) >= 0
        votes = {name: v if first else -v for name, v in sorted(cast.items())}
        extra = {"votes": votes} if set(votes) != {"label"} else {}
        chosen, rejected = two if first else (two[1], two[0])
        return self._pair(place, row, prompt, chosen, rejected, extra, drop=("votes", "annotator"))

    def _pair(
        self,
        place: str,
        row: Mapping[str, Any],
        prompt: tuple[Message, ...],
        chosen: str,
        rejected: str,
        extra: Mapping[str, Any] | None = None,
        drop: Sequence[str] = (),
    ) -> PreferencePair:
        texts = {"prompt": "\n".join(m.content for m in prompt), "chosen": chosen, "rejected": rejected}
        for name, text in texts.items():
            if len(text) > self.limit:
                raise _Rejected(
                    "too_long", f"{name} has {len(text):,} characters, the limit is {self.limit:,}: {text[:100]!r}"
                )
            try:
                text.encode()
            except UnicodeEncodeError as e:
                raise _Rejected("not_unicode", f"{name} has half a surrogate pair at character {e.start}") from None
        if not texts["prompt"].strip():
            raise _Rejected("empty_prompt", f"chosen: {chosen[:100]!r}")
        for name in ("chosen", "rejected"):
            if not texts[name].strip():
                raise _Rejected("empty_side", f"{name} is blank; prompt: {texts['prompt'][:100]!r}")
        if chosen == rejected:
            raise _Rejected("identical_sides", f"both sides are {chosen[:100]!r}")
        carried = {k: row[k] for k in CARRIED if row.get(k) is not None and k not in drop}
        columns = {**_nested(row.get("columns")), **carried, **(extra or {})}
        if not isinstance(columns.get("scores", {}), Mapping):
            columns.pop("scores")
        columns.setdefault("group", texts["prompt"][:2000])
        split = row.get("split") if row.get("split") in ("train", "valid", "test") else "train"
        return PreferencePair.make(
            prompt=prompt, chosen=chosen, rejected=rejected, source=place, columns=columns, split=split
        )

    def _aside(self, place: str, reason: str, evidence: str) -> Quarantined:
        return Quarantined(
            id=place, stage="import", reason=reason, evidence=evidence.encode("utf-8", "replace").decode()
        )


class _Rejected(Exception):
    def __init__(self, reason: str, evidence: str) -> None:
        super().__init__(reason)
        self.reason, self.evidence = reason, evidence


class _Votes:
    """Rows of several annotators about the same two answers, in either order, gathered into one."""

    def __init__(self) -> None:
        self._found: dict[tuple, tuple] = {}

    def add(
        self,
        place: str,
        row: Mapping[str, Any],
        prompt: tuple[Message, ...],
        two: tuple[str, str],
        cast: Mapping[str, int],
    ) -> None:
        group = self._found.setdefault((prompt, *sorted(two)), (place, row, prompt, two, {}))
        sign = 1 if group[3] == two else -1
        group[4].update({name: sign * v for name, v in cast.items()})

    def __len__(self) -> int:
        return len(self._found)

    def groups(self) -> Iterator[tuple]:
        yield from self._found.values()


@dataclass
class Seen:
    """What the rows of a file so far say about those that follow. words: ratings that are none, with their number; rated: rows
    that have ratings; votes: rows of several annotators, which make pairs at the end."""

    layout: Layout | None = None
    words: Counter[str] = field(default_factory=Counter)
    rated: int = 0
    votes: _Votes = field(default_factory=_Votes)


def _first(have: Iterable[str], names: Sequence[str]) -> str:
    return next((n for n in names if n in have), "")


def _value(row: Any, names: Sequence[str]) -> Any:
    return next((row[n] for n in names if n in row and row[n] is not None), None) if isinstance(row, Mapping) else row


def _sides(have: Iterable[str]) -> tuple[str, str] | None:
    return next(((a, b) for a, b in SIDES if a in have and b in have), None)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(str, columns)) or "none"


def _nested(value: Any) -> dict[str, Any]:
    """The column `columns` of our own files: an object, or its JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise _Rejected(
                "not_columns", f"the column `columns` holds {value[:200]!r}, which is no JSON object"
            ) from None
    return dict(value) if isinstance(value, Mapping) else {}


def _asked(row: Mapping[str, Any]) -> tuple[Message, ...] | None:
    """The prompt as messages; None where no column has one."""
    name = next((n for n in PROMPT if row.get(n)), "")
    value = row.get(name) if name else None
    if value is None:
        return None
    if isinstance(value, list):
        return _messages(value)
    text = _text(value)
    if name == "instruction" and isinstance(row.get("input"), str) and row["input"].strip():
        text = f"{text}\n\n{row['input']}"
    return (Message(role="user", content=text),)


def messages_of(row: Mapping[str, Any]) -> tuple[Message, ...]:
    """The conversation of a row, or the question it asks; empty where no column has one. Raises ValueError for what are
    no chat messages."""
    talk = next((row[n] for n in ("messages", "conversation", "conversations") if isinstance(row.get(n), list)), None)
    try:
        return _messages(talk) if talk is not None else _asked(row) or ()
    except _Rejected as fault:
        raise ValueError(fault.evidence) from None


def _messages(value: Sequence[Any]) -> tuple[Message, ...]:
    out = []
    for m in value:
        role, content = (
            (m.get("role", m.get("from")), m.get("content", m.get("value"))) if isinstance(m, Mapping) else (None, None)
        )
        role = {"human": "user", "gpt": "assistant"}.get(role, role) if isinstance(role, str) else role
        if role not in ("system", "user", "assistant", "tool") or not isinstance(content, str):
            raise _Rejected(
                "not_messages",
                f"{m!r} is no chat message: it needs role (system, user, assistant, tool) and content"[:300],
            )
        out.append(Message(role=role, content=content))
    return tuple(out)


def _transcript(text: str) -> tuple[Message, ...]:
    parts = _TURN.split(text)
    roles = {"Human": "user", "Assistant": "assistant"}
    return tuple(Message(role=roles[r], content=c) for r, c in zip(parts[1::2], parts[2::2], strict=True))


def _common(a: Sequence[Message], b: Sequence[Message]) -> tuple[Message, ...]:
    """The turns that both begin with, leaving each at least one."""
    n = 0
    while n < min(len(a), len(b)) - 1 and a[n] == b[n]:
        n += 1
    return tuple(a[:n])


def _text(value: Any) -> str:
    """A text, an assistant's message, or a list of one. Raises _Rejected for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1:
        return _text(value[0])
    if value is None:
        return ""
    (message,) = _messages([value])
    if message.role not in ("assistant", "user"):  # a prompt may be given as one message of the user
        raise _Rejected("not_messages", f"{value!r} is no answer: its role is {message.role}"[:300])
    return message.content


def _verdict(value: Any, names: tuple[str, str], column: str) -> int:
    """1 for the first side, -1 for the second, 0 for neither. Raises _Rejected for what could mean either."""
    if column in STRENGTH and isinstance(value, int | float):
        return (value < 0) - (value > 0)
    if value is None:
        return 0
    word = str(value).strip().casefold()
    word = str(int(float(word))) if re.fullmatch(r"\d\.0", word) else word
    ends = [n.casefold()[-1] for n in names]
    for sign, name, end in ((1, names[0], ends[0]), (-1, names[1], ends[1])):
        if word in (name.casefold(), end, f"model_{end}", f"model {end}", f"response {end}", f"assistant_{end}"):
            return sign
    if word in TIES or (word == "0" and "0" not in ends) or word in ("3", "2") and "0" in ends:
        return 0
    raise _Rejected("unknown_verdict", f"{value!r} in {column!r}: it should say {names[0]}, {names[1]} or tie")
