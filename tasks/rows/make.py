"""Makes pairs from conversations or questions of your own with a recipe's makers and a model behind an endpoint.

    pairs.jsonl        prompt, chosen, rejected and columns, as `espalier clean` and trainers read them
    quarantine.jsonl   what gave no pair, with reason and evidence
    card.json          counts, recipe and makers, model, what was used

Places asked about = pairs + quarantined.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synth.preferences.imported import Row, messages_of
from synth.preferences.making import once
from synth.types import Generate, Message, PreferencePair, Problem, Quarantined, Sampling, split_of
from tasks.core.errors import UserError
from tasks.rows.clean import as_row, is_plain
from tasks.rows.files import rows
from tasks.planning.pieces import bind_all
from tasks.planning.resolve import check_params, resolve
from tasks.storage import tables


@dataclass(frozen=True, kw_only=True)
class Made:
    """The result for a file."""

    pairs: list[PreferencePair]
    quarantined: list[Quarantined]
    card: dict[str, Any]


@dataclass
class Unasked:
    """Stands in for a model before it is queried: counts the first requests of every place, and answers none."""

    requests: int = 0
    tokens: int = 0
    kept: list[Sequence[Message]] = field(default_factory=list)

    def __call__(self, conversations: Sequence[Sequence[Message]], sampling: Sampling) -> list[str]:
        self.requests += len(conversations)
        self.tokens += sum(sampling.max_tokens for _ in conversations)
        self.kept += conversations
        return ["" for _ in conversations]


def make_file(where: str, recipe: str, generate: Generate, *, seed: int = 0, split: str = "train") -> Made:
    """One pair, or a reason, for every place of a file and maker of the recipe. Raises UserError for a recipe without
    makers, a file without a place, and what an endpoint says."""
    makers = _makers(recipe)
    problems, quarantined = problems_of(rows(where, split=split))
    if not problems:
        why = ", ".join(f"{n} {reason}" for reason, n in tables.counts(quarantined).items()) or "it is empty"
        raise UserError(
            f"{where} has nothing to make pairs of: {why}; rows need `messages` (a conversation) or `prompt`"
        )
    try:
        items = [m(seed, p, 0, generate) for m in makers for p in problems]
    except ValueError as error:  # an error of the endpoint: its cache keeps the answers
        raise UserError(str(error)) from error
    pairs, none = once(items)
    card = {
        "source": Path(where).name,
        "recipe": recipe,
        "makers": [m.piece.rpartition("/")[2] for m in makers],
        "produced": len(items) + len(quarantined),
        "accepted": len(pairs),
        "quarantined": tables.counts([*quarantined, *none]),
    }
    return Made(pairs=pairs, quarantined=[*quarantined, *none], card=card)


def _makers(recipe: str) -> list[Callable[..., Any]]:
    stage = resolve(check_params({"recipe": recipe}, Path("params.yaml")))[0]["preferences"]
    if not stage.params["makers"]:
        raise UserError(
            f"the recipe {recipe!r} names no maker of pairs: choose one that sets preferences.makers, such as rlhi"
        )
    return bind_all(stage.pieces, stage.params)["makers"]


def problems_of(items: Iterable[Row | Quarantined]) -> tuple[list[Problem], list[Quarantined]]:
    """(places to make a pair at, rows quarantined).

    A row with `messages` gives a place for every message of the user's that follows a reply, with the conversation up
    to it; one without such a message, and one with `prompt`, a single place. Read besides: `persona` (a text), `risky`
    (true or false), `answer` with `verifier` ("exact" unless said), `solution`.
    """
    problems: list[Problem] = []
    quarantined: list[Quarantined] = []
    for item in items:
        if isinstance(item, Quarantined):
            quarantined.append(item)
            continue
        place, row = item
        if not isinstance(row, Mapping):
            quarantined.append(_aside(place, "not_an_object", repr(row)))
            continue
        try:
            messages = messages_of(row)
        except ValueError as error:
            quarantined.append(_aside(place, "not_messages", str(error)))
            continue
        if not messages:
            quarantined.append(_aside(place, "empty_prompt", f"the row has the columns {', '.join(map(str, row))}"))
            continue
        ends = [
            i for i in range(2, len(messages)) if messages[i].role == "user" and messages[i - 1].role == "assistant"
        ]
        known = {k: row[k] for k in ("persona", "solution") if isinstance(row.get(k), str)} | (
            {"risky": True} if row.get("risky") is True else {}
        )
        for end in ends or [len(messages) - 1]:
            problems.append(
                Problem.make(
                    prompt=messages[: end + 1],
                    answer=str(row.get("answer") or ""),
                    verifier=str(row.get("verifier") or "exact"),
                    env="single",
                    family="own",
                    lineage={**known, "root": messages[0].content, "place": place},
                    split=split_of(messages[0].content),
                )
            )
    return problems, quarantined


def _aside(place: str, reason: str, evidence: str) -> Quarantined:
    return Quarantined(id=place, stage="preferences", reason=reason, evidence=evidence[:500])


def write(outcome: Made, out: Path) -> None:
    """Writes the files of the module's docstring."""
    out.mkdir(parents=True, exist_ok=True)
    plain = all(map(is_plain, outcome.pairs))
    for name, lines in (
        (
            "pairs",
            [
                {k: v for k, v in as_row(p, plain).items() if k not in ("weight", "reasons")}
                | {"columns": dict(p.columns)}
                for p in outcome.pairs
            ],
        ),
        ("quarantine", [vars(q) for q in outcome.quarantined]),
    ):
        (out / f"{name}.jsonl").write_text(
            "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines), encoding="utf-8"
        )
    (out / "card.json").write_text(
        json.dumps(outcome.card, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
