"""The tool's own questions are proved again from the file and the base alone, whatever kind of source the base was built
from: tables, records, triples, a database, documents."""

import csv
import json
import random
import sqlite3
from pathlib import Path
from urllib.parse import quote

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from flows.cli import main
from synth.knowledge.sources import READERS

LINKS = {"capital": "city", "river": "river", "region": "region", "sea": "sea", "continent": "continent"}
Row = dict[str, str]


def things() -> dict[str, list[Row]]:
    """Eighty countries, twenty rivers and six regions with links, numbers and years; some are shared, some missing."""
    rng = random.Random(3)

    def some(begin: str, n: int, end: str) -> list[str]:
        return [f"{begin}{chr(97 + i % 26)}{chr(97 + i // 26)}{end}" for i in range(n)]

    def number(low: int, high: int) -> str:
        return str(rng.randrange(low, high))

    rivers, regions = some("Riv", 20, "en"), some("Reg", 6, "an")
    rows = {
        "country": [
            {
                "name": name,
                "capital": capital,
                "river": rng.choice(rivers),
                "region": rng.choice(regions),
                "area": number(2_000, 90_000),
                "founded": number(1500, 2000),
            }
            for name, capital in zip(some("Land", 80, "or"), some("Cap", 80, "ia"), strict=True)
        ],
        "river": [{"name": n, "sea": rng.choice(some("Sea", 4, "um")), "length": number(100, 4000)} for n in rivers],
        "region": [{"name": n, "continent": rng.choice(some("Con", 3, "ent"))} for n in regions],
    }
    kept = ("name", "capital", "sea", "continent")
    for each in rows.values():
        each[:] = [{k: v for k, v in row.items() if k in kept or rng.random() < 0.9} for row in each]
    return rows


def schema(folder: Path, kind: str, suffix: str) -> list[str]:
    """Arguments of `kb build` for a file of records of each type."""
    sources = []
    for type_, rows in things().items():
        names = dict.fromkeys(k for row in rows for k in row if k != "name")
        fields = {k: {"path": k, **({"range": LINKS[k]} if k in LINKS else {})} for k in names}
        source = {"kind": kind, "path": str(folder / f"{type_}{suffix}"), "type": type_, "fields": fields}
        sources.append(source | {"id": "name"})
    path = folder / "schema.yaml"
    path.write_text(yaml.safe_dump({"sources": sources}))
    return ["--schema", str(path)]


def csv_records(folder: Path) -> list[str]:
    for type_, rows in things().items():
        with (folder / f"{type_}.csv").open("w", newline="") as out:
            writer = csv.DictWriter(out, list(dict.fromkeys(k for row in rows for k in row)))
            writer.writeheader()
            writer.writerows(rows)
    return schema(folder, "csv_records", ".csv")


def json_records(folder: Path) -> list[str]:
    for type_, rows in things().items():
        (folder / f"{type_}.json").write_text(json.dumps(rows))
    return schema(folder, "json_records", ".json")


def arrow_records(folder: Path) -> list[str]:
    for type_, rows in things().items():
        keys = dict.fromkeys(k for row in rows for k in row)
        pq.write_table(pa.table({k: [row.get(k) for row in rows] for k in keys}), folder / f"{type_}.parquet")
    return schema(folder, "arrow_records", ".parquet")


def sheet_records(folder: Path) -> list[str]:
    for type_, rows in things().items():
        book = openpyxl.Workbook()
        keys = list(dict.fromkeys(k for row in rows for k in row))
        for cells in (keys, *([row.get(k) for k in keys] for row in rows)):
            book.active.append([int(c) if isinstance(c, str) and c.isdigit() else c for c in cells])
        book.save(folder / f"{type_}.xlsx")
    return schema(folder, "sheet_records", ".xlsx")


def triples() -> list[tuple[str, str, str]]:
    return [(row["name"], k, v) for rows in things().values() for row in rows for k, v in row.items() if k != "name"]


def csv_triples(folder: Path) -> list[str]:
    path = folder / "mine.csv"
    path.write_text("subject,relation,object\n" + "".join(",".join(t) + "\n" for t in triples()))
    return [str(path)]


def jsonl_triples(folder: Path) -> list[str]:
    path = folder / "mine.jsonl"
    keys = ("subject", "relation", "object")
    path.write_text("".join(json.dumps(dict(zip(keys, t, strict=True))) + "\n" for t in triples()))
    return [str(path)]


def rdf_triples(folder: Path) -> list[str]:
    names = {row["name"] for rows in things().values() for row in rows}
    names |= {v for _, k, v in triples() if k not in ("area", "founded")}
    thing = lambda n: f"<https://example.org/{quote(n)}>"  # noqa: E731
    lines = [f'{thing(n)} <http://www.w3.org/2000/01/rdf-schema#label> "{n}"@en .' for n in sorted(names)]
    for subject, relation, value in triples():
        text = thing(value) if value in names else f'"{value}"'
        lines.append(f"{thing(subject)} <https://example.org/rel#{relation}> {text} .")
    path = folder / "mine.nt"
    path.write_text("\n".join(lines) + "\n")
    return [str(path)]


def sqlite_tables(folder: Path) -> list[str]:
    path = folder / "mine.sqlite"
    with sqlite3.connect(path) as db:
        for table in ("capital", "river", "region"):
            db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
        links = ", ".join(f"{t}_id INTEGER REFERENCES {t}(id)" for t in ("capital", "river", "region"))
        db.execute(f"CREATE TABLE country (id INTEGER PRIMARY KEY, name TEXT UNIQUE, {links}, area INTEGER)")
        for row in things()["country"]:
            ids = []
            for t in ("capital", "river", "region"):
                db.execute(f"INSERT OR IGNORE INTO {t}(name) VALUES (?)", (row.get(t),))
                ids.append((db.execute(f"SELECT id FROM {t} WHERE name = ?", (row.get(t),)).fetchone() or [None])[0])
            db.execute(
                "INSERT INTO country(name, capital_id, river_id, region_id, area) VALUES (?, ?, ?, ?, ?)",
                (row["name"], *ids, row.get("area")),
            )
    db.close()
    return [str(path)]


def csv_tables(folder: Path) -> list[str]:
    (database,) = sqlite_tables(folder)
    out = folder / "tables"
    out.mkdir()
    with sqlite3.connect(database) as db:
        for table in ("capital", "river", "region", "country"):
            rows = db.execute(f"SELECT * FROM {table}")
            with (out / f"{table}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([[c[0] for c in rows.description], *rows])
    db.close()
    return [str(out)]


def documents(folder: Path) -> list[str]:
    for type_, rows in things().items():
        (folder / "pages" / type_).mkdir(parents=True)
        for row in rows:
            lines = [f"# {row['name']}", "", f"{row['name']} is a {type_}.", ""]
            lines += [f"- {k.title()}: {v}" for k, v in row.items() if k != "name"]
            (folder / "pages" / type_ / f"{row['name']}.md").write_text("\n".join(lines))
    return [str(folder / "pages")]


KINDS = (
    *(csv_records, json_records, arrow_records, sheet_records),
    *(csv_triples, jsonl_triples, rdf_triples, sqlite_tables, csv_tables, documents),
)


def test_every_kind_of_source_is_here() -> None:
    assert {k.__name__ for k in KINDS} == set(READERS)


@pytest.fixture(scope="module", params=KINDS, ids=lambda k: k.__name__)
def base(request, tmp_path_factory) -> Path:
    """A folder with the base `kb`, its levels and its schema as it was guessed."""
    folder = tmp_path_factory.mktemp(request.param.__name__)
    assert main(["kb", "build", *request.param(folder), "--out", str(folder / "kb")]) == 0
    return folder


@pytest.mark.parametrize("world", [["--closed-world"], ["--closed-world", "--levels", "3,4", "--depths", "2"]])
def test_all_questions_are_proved_again(base: Path, world: list[str], capsys, tmp_path) -> None:
    out = tmp_path / "q"
    assert main(["questions", "grow", "--kb", str(base / "kb"), "--out", str(out), "--n", "60", *world]) == 0
    for file in ("questions.jsonl", "problems.parquet"):
        capsys.readouterr()
        assert main(["verify", str(out / file), "--kb", str(base / "kb")]) == 0
        output = capsys.readouterr().out
        n = len((out / "questions.jsonl").read_text().splitlines())
        assert n >= 8 and f"{n} of {n} questions proved again" in output
    (tmp_path / "alone").mkdir()
    alone = (out / "questions.jsonl").rename(tmp_path / "alone" / "published.jsonl")
    assert main(["verify", str(alone), "--kb", str(base / "kb")]) == 0, "without the card beside it"


def test_questions_of_some_relations_are_proved_again_where_others_have_their_words(capsys, tmp_path) -> None:
    """`--schema` narrows the relations of a base in which two sources say the same of the same things."""
    _, path = csv_records(tmp_path)
    both = yaml.safe_load(Path(path).read_text())
    fields = ("river", "region", "area")
    twin = both["sources"][0]
    again = {f"{f}_again": {**twin["fields"][f], "label": f} for f in fields}
    both["sources"].append({**twin, "fields": again})
    Path(path).write_text(yaml.safe_dump(both))
    assert main(["kb", "build", "--schema", path, "--out", str(tmp_path / "kb")]) == 0
    narrow = tmp_path / "narrow.yaml"
    narrow.write_text(yaml.safe_dump({"sources": [], "relations": {f"{f}_again": {} for f in fields}}))
    out = tmp_path / "q"
    grow = [
        "questions",
        "grow",
        "--kb",
        str(tmp_path / "kb"),
        "--closed-world",
        "--only",
        "capital,founded,sea,continent",
    ]
    assert main([*grow, "--schema", str(narrow), "--out", str(out), "--n", "30"]) == 0
    lines = [json.loads(line) for line in (out / "questions.jsonl").read_text().splitlines()]
    assert any(json.loads(row["lineage"]).get("not_meant") for row in lines)
    capsys.readouterr()
    assert main(["verify", str(out / "questions.jsonl"), "--kb", str(tmp_path / "kb")]) == 0
    assert f"{len(lines)} of {len(lines)} questions proved again" in capsys.readouterr().out


def test_rows_of_an_older_version_are_one_sentence(base: Path, capsys, tmp_path) -> None:
    out = tmp_path / "q"
    assert main(["questions", "grow", "--kb", str(base / "kb"), "--out", str(out), "--n", "8", "--closed-world"]) == 0
    old = [json.loads(line) for line in (out / "questions.jsonl").read_text().splitlines()]
    for row in old:
        for field in ("seal", "bounds", "relations"):
            del row[field]
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in old))
    capsys.readouterr()
    assert main(["verify", str(path), "--kb", str(base / "kb")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "published by an older version" in error and "grow it again" in error
