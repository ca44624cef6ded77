"""Published or own test sets as problems: files in known layouts, or names on the Hub.

    set:
      evaluate:
        sets:
        - {name: gsm8k, layout: gsm8k, path: data/gsm8k/test.jsonl, limit: 200}
        - {name: mine, path: data/mine.jsonl, question: ask, answer: gold}
        - {name: mbpp, layout: mbpp, hub: google-research-datasets/mbpp, split: test, check: true}

Keys: name; path (JSONL, a JSON list, CSV or Parquet, below data/) or hub with config and split; layout, a file of
synth/testsets/layouts (`plain` unless said) and its options; limit (rows, drawn by hash); samples; check (each row's
own answer must score 1 before it is asked).
"""

from __future__ import annotations

import csv
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from synth.types import Problem, Quarantined, Scored, digest
from synth.verify import verify
from tasks.core.errors import UserError, nearest
from tasks.planning.pieces import files, find
from tasks.runtime.stage import Stage

FOLDER = "layout"
KEYS = {"name", "path", "hub", "config", "split", "layout", "limit", "samples", "check"}


@dataclass(frozen=True)
class TestSet:
    """Problems of one set, and the rows that could not become problems."""

    name: str
    problems: tuple[Problem, ...]
    quarantined: tuple[Quarantined, ...]
    samples: int
    source: str


def load(stage: Stage, spec: Mapping[str, Any], i: int) -> TestSet:
    """Read one entry of `evaluate.sets`. Raises UserError for an unknown key, a missing file, and a set without a
    problem."""
    where = f"evaluate.sets[{i}]"
    if (
        not isinstance(spec, Mapping)
        or not isinstance(spec.get("name"), str)
        or not spec["name"].strip()
        or "," in spec["name"]
    ):
        raise UserError(
            f"{where} = {spec!r} must have a name without a comma, for example {{name: mine, path: data/mine.jsonl}}"
        )
    if ("path" in spec) == ("hub" in spec):
        raise UserError(
            f"{where}: name either a file (path: data/mine.jsonl) or a data set of the Hub (hub: openai/gsm8k)"
        )
    name, kind = spec["name"], str(spec.get("layout", "plain"))
    if kind.replace("-", "_") not in files(FOLDER):
        raise UserError(f"{where}: there is no layout {kind!r}: {nearest(kind, files(FOLDER))}")
    layout = find(FOLDER, kind)
    options = {p.name for p in inspect.signature(layout).parameters.values() if p.kind is p.KEYWORD_ONLY} - {"name"}
    for key in spec:
        if key not in KEYS | options:
            raise UserError(f"{where}: unknown key {key!r}: {nearest(key, KEYS | options)}")
    source = str(spec.get("path") or spec["hub"])
    rows = (
        read(stage.source(source))
        if "path" in spec
        else hub(source, spec.get("config"), str(spec.get("split", "test")))
    )
    problems, quarantined = problems_of(rows, layout, name, source, {k: v for k, v in spec.items() if k in options})
    chosen = sorted(problems, key=lambda p: digest("evaluate", stage.seed, p.id))[: spec.get("limit") or None]
    if spec.get("check"):
        chosen, wrong = _checked(chosen, name)
        quarantined += wrong
    if not chosen:
        first = quarantined[0].evidence if quarantined else f"{source} has no rows"
        raise UserError(f"{where}: no row of {source} is a problem of the layout {kind}; the first: {first}")
    return TestSet(name, tuple(chosen), tuple(quarantined), int(spec.get("samples", 1)), source)


def problems_of(
    rows: Iterable[Any], layout: Callable[..., Problem], name: str, source: str, options: Mapping[str, Any]
) -> tuple[list[Problem], list[Quarantined]]:
    """The problems of rows, in their order, and those that cannot be one, with the reason."""
    problems: dict[str, Problem] = {}
    quarantined: list[Quarantined] = []
    for n, row in enumerate(rows):
        try:
            if not isinstance(row, Mapping):
                raise ValueError(f"not_a_row: {row!r:.80} is no object")
            problem = layout(row, n, name=name, **options)
            if problem.id in problems:
                raise ValueError(f"duplicate: the same as row {problems[problem.id].lineage['index']}")
            problems[problem.id] = problem
        except ValueError as e:
            reason, _, evidence = str(e).partition(":")
            quarantined.append(
                Quarantined(
                    id=f"{name}/{n}", stage="evaluate", reason=reason, evidence=f"{source}, row {n}: {evidence.strip()}"
                )
            )
    return list(problems.values()), quarantined


def _checked(problems: list[Problem], name: str) -> tuple[list[Problem], list[Quarantined]]:
    good, wrong = [], []
    for p in problems:
        score = verify(p, p.answer)
        if isinstance(score, Scored) and score.value == 1.0:
            good.append(p)
        else:
            verdict = f"{p.verifier} gives {score}"
            wrong.append(
                Quarantined(
                    id=f"{name}/{p.lineage['index']}", stage="evaluate", reason="wrong_reference", evidence=verdict
                )
            )
    return good, wrong


def read(path: Path) -> Iterator[Any]:
    """The rows of a file, by its ending. Raises UserError with the line that cannot be read."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        yield from pyarrow.parquet.read_table(path).to_pylist()
        return
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as e:
        raise UserError(f"{path} is not UTF-8 (byte {e.start}): convert it first") from None
    if path.suffix == ".csv":
        yield from csv.DictReader(text.splitlines())
    elif path.suffix == ".json":
        try:
            rows = json.loads(text)
        except ValueError as e:
            raise UserError(
                f"{path} is not JSON ({e}): fix it, or name it .jsonl where it holds an object per line"
            ) from None
        if not isinstance(rows, list):
            raise UserError(f"{path} does not hold a list of rows")
        yield from rows
    else:
        for n, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as e:
                    raise UserError(f"{path}, line {n}, is not JSON ({e})") from None


def hub(name: str, config: str | None, split: str) -> Iterator[Mapping[str, Any]]:
    """The rows of a data set of the Hugging Face Hub, or of a folder in its layout. Raises UserError if it cannot be
    loaded."""
    import datasets

    try:
        yield from cast(Iterable[Mapping[str, Any]], datasets.load_dataset(name, config, split=split))
    except (OSError, ValueError, ConnectionError) as e:
        raise UserError(
            f"the data set {name!r} (config {config}, split {split}) could not be loaded: {' '.join(str(e).split())[:300]}"
        ) from None
