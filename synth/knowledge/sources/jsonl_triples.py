"""JSONL triples: one JSON object per line with the keys subject, relation, object."""

from __future__ import annotations

import json
from pathlib import Path

from synth.knowledge.ingest import Reading, Row, read_schema, read_text
from synth.knowledge.sources.json_records import no_repeated_key
from synth.knowledge.sources.records import scalar
from synth.knowledge.text import tidy

_KEYS = ("subject", "relation", "object", "subject_type", "object_type")


def jsonl_triples(path: Path, name: str, *, relations: str = "") -> Reading:
    """Read triples; subject_type and object_type are optional. A line that is not such an object is quarantined.

    `relations` names a relations.csv, relative to the file; without it everything is inferred. Raises ValueError as
    `read_text`.
    """
    reading = Reading()
    if relations:
        reading.schema, reading.closed = read_schema(path.parent / relations, str(Path(name).parent / relations)), True
    for number, line in enumerate(read_text(path, name).split("\n"), start=1):
        place = f"{name} line {number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=no_repeated_key)
        except ValueError as error:  # JSONDecodeError is one
            reading.quarantine("not_json", place, f"the line is not one JSON object ({error}): fix it", line)
            continue
        unknown = sorted(set(value) - set(_KEYS)) if isinstance(value, dict) else []
        if not isinstance(value, dict) or unknown or any(isinstance(v, (list, dict)) for v in value.values()):
            reading.quarantine(
                "not_a_triple",
                place,
                f"the line is not an object of {', '.join(_KEYS[:3])}{f' (unknown: {unknown[0]!r})' if unknown else ''}: fix it",
                line,
            )
            continue
        reading.rows.append(
            Row(
                **{"subject": "", "relation": "", "object": "", **{k: tidy(scalar(v)) for k, v in value.items()}},
                source=place,
                span=line.strip(),
            )
        )
    return reading
