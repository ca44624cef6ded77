"""Reads rows of preference data from a file, a folder, or a dataset on the Hub.

JSON lines are read one by one, so that a broken line is quarantined and the rest goes on; everything else is read by
`datasets`: .json, .csv, .tsv, .parquet, .arrow, folders of such files, folders that `save_to_disk` wrote, and names of
the Hub ("owner/name"), streamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from synth.preferences.imported import Reader, Row
from synth.types import Quarantined
from tasks.core.errors import UserError
from tasks.core.cells import delimiter

KINDS = {".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".arrow": "arrow"}
LINES = (".jsonl", ".ndjson")


def rows(
    where: str, *, split: str = "train", config: str | None = None, revision: str | None = None
) -> Iterator[Row | Quarantined]:
    """(place, row) of each row, in order; a line that is no JSON is a Quarantined (not_json, not_utf8). Empty lines are
    left out.

    split: of a dataset on the Hub, or of a folder that holds several. config, revision: of a dataset on the Hub.
    Raises UserError if nothing exists there, or nothing readable.
    """
    path = Path(where)
    if path.is_file() and path.suffix in LINES:
        return _lines([path])
    if path.is_file():
        if path.suffix not in KINDS:
            raise UserError(
                f"{where} ends in {path.suffix or 'nothing'}: rows are read from {', '.join([*LINES, *KINDS])}: convert it"
            )
        return _loaded(where, [path], split)
    if path.is_dir() and (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
        return _saved(where, path, split)
    if is_cleaned(path):
        return _lines([path / "cleaned.jsonl"])
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in (*LINES, *KINDS))
        kinds = {("lines" if p.suffix in LINES else p.suffix) for p in files}
        if not kinds:
            raise UserError(
                f"the folder {where} holds no file that can be read: rows are read from {', '.join([*LINES, *KINDS])}"
            )
        if len(kinds) != 1:
            raise UserError(
                f"the folder {where} holds files of the kinds {', '.join(sorted(kinds))}: give it files of one kind"
            )
        return _lines(files) if kinds == {"lines"} else _loaded(where, files, split)
    if where.count("/") == 1 and not where.startswith((".", "/")) and not path.suffix:
        return _hub(where, split, config, revision)
    raise UserError(f"{where} does not exist: give a file, a folder, or the name of a dataset on the Hub as owner/name")


def is_cleaned(folder: Path) -> bool:
    """Whether `espalier clean` wrote the folder: then only its training file is read."""
    return (folder / "cleaned.jsonl").is_file() and (folder / "removed.jsonl").is_file()


def reader_of(where: str, *, columns: str = "", scale: str = "", limit: int = 200_000) -> Reader:
    """How rows become pairs, from what a command line says: columns as "prompt=question,chosen=better", scale as words, the
    worst first. Raises UserError for columns that are not written so."""
    given = [part for part in columns.split(",") if part]
    if not all("=" in part for part in given):
        raise UserError(
            f"--columns {columns!r}: write OURS=YOURS, separated by commas, such as prompt=question,chosen=better"
        )
    words = tuple(word.strip() for word in scale.split(",") if word.strip())
    rename = dict(part.split("=", 1) for part in given)
    return Reader(name=Path(where).name, rename=rename, scale=words, limit=limit)


def _lines(paths: list[Path]) -> Iterator[Row | Quarantined]:
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                place = f"{path.name} line {number}"
                if not line.strip():
                    continue
                yield parsed(place, line)


def parsed(place: str, line: bytes) -> Row | Quarantined:
    """(place, value) of one line of JSON; a Quarantined that says why where it is none."""
    try:
        return place, json.loads(line)
    except (ValueError, RecursionError) as e:
        encoded = f"byte {e.start}" if isinstance(e, UnicodeDecodeError) else "a zero byte" if b"\0" in line else ""
        why, where = ("not_utf8", f"{encoded}: save the file as UTF-8") if encoded else ("not_json", str(e))
        return Quarantined(id=place, stage="import", reason=why, evidence=f"{where}: {line[:200]!r}")


def _loaded(where: str, files: list[Path], split: str) -> Iterator[Row]:
    kind = KINDS[files[0].suffix]
    knobs = {"sep": "\t" if files[0].suffix == ".tsv" else delimiter(files[0])} if kind == "csv" else {}
    return _from(
        where,
        lambda d: d.load_dataset(kind, data_files=[str(f) for f in files], split="train", streaming=True, **knobs),
    )


def _saved(where: str, path: Path, split: str) -> Iterator[Row]:
    def load(datasets: Any) -> Any:
        dataset = datasets.load_from_disk(str(path))
        return _chosen(where, dataset, split) if isinstance(dataset, datasets.DatasetDict) else dataset

    return _from(where, load)


def _hub(name: str, split: str, config: str | None, revision: str | None) -> Iterator[Row]:
    def load(datasets: Any) -> Any:
        return _chosen(name, datasets.load_dataset(name, config, revision=revision, streaming=True), split)

    return _from(name, load)


def _chosen(where: str, dataset: Any, split: str) -> Any:
    if split not in dataset:
        raise UserError(f"{where} has no split {split!r} (it has {', '.join(dataset)}): name one with --split")
    return dataset[split]


def _from(where: str, load: Any) -> Iterator[Row]:
    """Rows as `datasets` gives them; its errors about the data become one sentence."""
    import datasets
    from datasets.exceptions import DatasetGenerationError

    datasets.disable_progress_bars()
    try:
        for number, row in enumerate(load(datasets), start=1):
            yield f"{Path(where).name} row {number}", row
    except UserError:
        raise
    except (OSError, ValueError, DatasetGenerationError) as e:
        reason = str(e).strip().split("\n")[0]
        remedy = "fix the file" if Path(where).exists() else "check name and network"
        raise UserError(f"{where} cannot be read as a dataset ({type(e).__name__}: {reason}): {remedy}") from None


def texts_of(where: str) -> list[str]:
    """The texts of a protected file: lines of .txt, else every text in every row."""
    path = Path(where)
    if path.is_file() and path.suffix == ".txt":
        return path.read_text(encoding="utf-8").splitlines()
    return [text for item in rows(where) if not isinstance(item, Quarantined) for text in _strings(item[1])]


def _strings(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    return (
        [value]
        if isinstance(value, str)
        else [s for v in value for s in _strings(v)]
        if isinstance(value, list)
        else []
    )
