"""From rows of text to a knowledge base: the result of a reader of a source (`Reading`), the schema, and `build`.

A schema is known in part: the user's statements (relations.csv, or the fields of a record) are enforced, everything
else is inferred from the rows. A row that cannot be a fact is quarantined with a reason and its text, and the others
are processed: produced = accepted + quarantined, always.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from synth.knowledge.columns import understand
from synth.knowledge.kb import KB, LITERALS, Entity, Fact, Relation
from synth.knowledge.names import Same, resolve
from synth.knowledge.rows import Reading, Row, quarantine
from synth.knowledge.text import tidy
from synth.knowledge.words import counted_things, counted_words, key_words, one_word
from synth.types import Quarantined

if TYPE_CHECKING:
    pass

THING = "thing"  # the type of an entity whose type nothing states
BLANK = "all cells of the row are blank: fill it, or remove it"
LONGEST = 1000  # the most characters of a name: it precedes every line of its page in the search index
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_YEAR = re.compile(r"-?\d{1,4}")
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_NO_WORLD = "world_countries: 0; kb build: no --world"
_FLAGS = ("functional", "inverse_functional", "complete")


@dataclass(frozen=True, kw_only=True)
class Built:
    """A knowledge base and the account of its rows: produced = accepted + len(quarantined). `listed`: the relations
    that are complete because every record of a table has a value (`_listed_completely`); `doubtful`: names that may
    refer to the same thing, for a person to decide; `absent`: the relations of the schema that no row has."""

    kb: KB
    quarantined: tuple[Quarantined, ...]
    produced: int
    accepted: int
    listed: frozenset[str] = frozenset()
    doubtful: tuple[Same, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def bad(self) -> list[Quarantined]:
        """The quarantined rows with content: blank rows are counted, but are not mistakes."""
        return [q for q in self.quarantined if q.reason != "blank_row"]


def read_text(path: Path, name: str) -> str:
    """The text of a file. Raises ValueError if it is missing, empty, or not UTF-8 (with the position of the first
    invalid byte)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name} cannot be read ({error.strerror}): fix the path of this source") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{name} line {line} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}: save the file as UTF-8, "
            f"for example with `iconv -f latin1 -t utf-8`"
        ) from error
    if not text.strip():
        raise ValueError(
            f"{name} line 1 is the end of an empty source: add rows to it, or take it out of the list of sources"
        )
    return text


def csv_lines(text: str, name: str, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of the rows of a CSV text. A cell may be as long as the text: the csv module's limit, 131,072
    characters by default, is lifted while reading. Raises ValueError for an unclosed quote."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        limit = csv.field_size_limit(len(text) + 1)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ValueError(
                f"{name} line {reader.line_num} is not CSV ({error}): close the quote, and double a quote inside a cell"
            ) from error
        finally:
            csv.field_size_limit(limit)
        if cells is None:
            return
        yield reader.line_num, cells


def read_table(
    path: Path, name: str, needed: Sequence[str], allowed: Sequence[str] = (), *, blank: bool = False
) -> Iterable[tuple[int, str, dict[str, str] | None]]:
    """Rows of a CSV file with a header: (line, text of the row, cells by column or None where their number is wrong).

    Empty lines are no rows. Rows whose cells are all blank are passed over, or with `blank` given like the others.
    Raises ValueError for a missing or unknown column, an unclosed quote, and no row below
    the header.
    """
    rows = list(csv_lines(read_text(path, name), name))
    header = [tidy(c).lower() for c in rows[0][1]]
    for column in needed:
        if column not in header:
            for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
                if len(rows[0][1]) == 1 and set(needed) <= {c.strip().strip('"') for c in header[0].split(mark)}:
                    raise ValueError(
                        f"{name} line 1 is separated by {word}: save the file with commas between its cells"
                    )
            raise ValueError(
                f"{name} line 1 lacks the column {column!r}: begin the file with the header {','.join(needed)}"
            )
    for column in header:
        if column not in needed and column not in allowed:
            raise ValueError(
                f"{name} line 1 has an unknown column {column!r}: the columns are {', '.join([*needed, *allowed])}"
            )
    body = [(line, cells) for line, cells in rows[1:] if any(c.strip() for c in cells) or (blank and cells)]
    if not body:
        raise ValueError(
            f"{name} line {rows[-1][0]} is the end of a source without rows: add rows below the header, or take it out of "
            "the list of sources"
        )
    for line, cells in body:
        raw = io.StringIO()
        csv.writer(raw, lineterminator="").writerow(cells)
        yield line, raw.getvalue(), dict(zip(header, map(tidy, cells))) if len(cells) == len(header) else None


def read_schema(path: Path, name: str) -> dict[str, dict[str, object]]:
    """relations.csv: name, and any other field of `Relation`; an empty cell is inferred. Raises ValueError for
    a wrong row."""
    columns = [f.name for f in fields(Relation)]
    out: dict[str, dict[str, object]] = {}
    for line, _, cells in read_table(path, name, ["name"], columns[1:]):
        if cells is None or not cells["name"]:
            raise ValueError(
                f"{name} line {line} has {'the wrong number of cells' if cells is None else 'no name'}: give one cell for each "
                "column of the header"
            )
        if cells["name"] in out:
            raise ValueError(
                f"{name} line {line} declares the relation {cells['name']!r} again: keep one of the two lines"
            )
        stated: dict[str, object] = {k: v for k, v in cells.items() if v and k != "name"}
        for flag in _FLAGS:
            if flag in stated:
                if str(stated[flag]).lower() not in ("true", "false"):
                    raise ValueError(
                        f"{name} line {line} has {stated[flag]!r} under {flag!r}: write true, false, or nothing to have it inferred"
                    )
                stated[flag] = str(stated[flag]).lower() == "true"
        out[cells["name"]] = stated
    return out


def write_schema(path: Path, relations: Iterable[Relation]) -> None:
    """Write relations.csv, as `read_schema` reads it, for the user to edit."""
    columns = [f.name for f in fields(Relation)]
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        for r in relations:
            writer.writerow([str(v).lower() if isinstance(v, bool) else v for v in (getattr(r, c) for c in columns)])


def infer(name: str, rows: Sequence[Row], stated: Mapping[str, object], subjects: Mapping[str, str]) -> Relation:
    """The relation of `rows`, as far as `stated` leaves it open.

    domain, range         the type most rows state; else objects that are all numbers make "number" ("year" where the
                          name says so), all dates "date", objects most of which are subjects elsewhere (`subjects`:
                          name -> type) are entities of that type; the rest is "string"
    functional, inverse_functional   as the rows have it
    complete              false: only a user can know that nothing is missing
    """
    objects = [r.object for r in rows]
    forward, backward = defaultdict(set), defaultdict(set)
    for r in rows:
        forward[r.subject].add(r.object)
        backward[r.object].add(r.subject)
    known = [subjects[o] for o in objects if o in subjects]
    if all(_NUMBER.fullmatch(o) for o in objects):
        kind = "year" if "year" in name.lower() and all(_YEAR.fullmatch(o) for o in objects) else "number"
    elif all(_DATE.fullmatch(o) for o in objects):
        kind = "date"
    else:
        kind = _most(known) if 2 * len(known) > len(objects) else "string"
    label = one_word(re.sub(r"[_\-]+", " ", name))
    domain = str(stated.get("domain") or _most([r.subject_type for r in rows if r.subject_type]) or THING)
    range_ = str(stated.get("range") or _most([r.object_type for r in rows if r.object_type]) or kind)
    unsaid = range_ not in LITERALS and not stated.keys() & {"label", "passage", "forward", "inverse"}
    own = key_words(label, domain, range_) if unsaid else {}
    guess = {
        "domain": domain,
        "range": range_,
        "functional": all(len(v) == 1 for v in forward.values()),
        "inverse_functional": all(len(v) == 1 for v in backward.values()),
        **(counted_words(counted_things(label)) if kind == "number" else {"label": label, **own}),
    }
    return Relation(name=name, **{**guess, **stated})  # type: ignore[arg-type]


def _most(values: Sequence[str]) -> str:
    """The most frequent value (of equals the first); "" for none."""
    return Counter(values).most_common(1)[0][0] if values else ""


def schema_of(
    readings: Sequence[Reading],
    known: Iterable[Relation] = (),
    edited: Mapping[str, Mapping[str, object]] | None = None,
) -> dict[str, Relation]:
    """Relation name -> relation. Fields come from `edited` first, then from a reading, then from `known`, and are
    otherwise inferred from all rows that use the relation. Raises ValueError if `edited` names a relation that no row
    has, or another domain (of one of `known`: or range), and if two sources give a relation different ones; the message
    names both places."""
    stated = {r.name: {f.name: getattr(r, f.name) for f in fields(r) if f.name != "name"} for r in known}
    world = {name: (given["domain"], given["range"]) for name, given in stated.items()}
    owners: dict[str, Reading] = {}
    for reading in readings:
        for name, given in reading.schema.items():
            was = stated.get(name, {})
            for side in ("domain", "range"):
                if side in given and was.get(side, given[side]) != given[side]:
                    theirs = name not in owners
                    first = "the fictional world" if theirs else _place(owners[name], name)
                    remedy = (
                        _own_name(name, reading)
                        if edited and name in edited and (reading.guess or reading.documents)
                        else f"give {'yours' if theirs else 'the second'} another name (a column: `fields: {{my_{name}: {{path: "
                        f"{name}}}}}` with the other columns, in its entry under `sources`)"
                    )
                    raise ValueError(
                        f"the {side} of the relation {name!r} is {was[side]!r} in {first} and {given[side]!r} in {_place(reading, name)}: "
                        f"{remedy}{f', or leave that world out ({_NO_WORLD})' if theirs else ''}"
                    )
            owners[name] = reading
            stated[name] = {**stated.get(name, {}), **given}
    used = {r.relation for reading in readings for r in reading.rows} if edited else set()
    for name, given in (edited or {}).items():
        if name not in used:
            near = difflib.get_close_matches(name, used, 1, 0.0)
            raise ValueError(
                f"the schema edits the relation {name!r}, which no row has (nearest: {near[0] if near else 'none'!r}): fix its name"
            )
        if (
            name in world
            and (mine := (given.get("domain", world[name][0]), given.get("range", world[name][1]))) != world[name]
        ):
            raise ValueError(
                f"the relation {name!r} leads from {mine[0]!r} to {mine[1]!r} in the schema and from {world[name][0]!r} to "
                f"{world[name][1]!r} in the fictional world, which cannot be changed: {_own_name(name, owners.get(name))}, or "
                f"leave that world out ({_NO_WORLD})"
            )
        was = stated.get(name, {}).get("domain", given.get("domain"))
        if given.get("domain", was) != was:
            raise ValueError(
                f"the schema gives {name!r} the domain {given['domain']!r}, but its source says {was!r}: change the type in the source"
            )
        stated[name] = {**stated.get(name, {}), **given}
    rows: dict[str, list[Row]] = defaultdict(list)
    subjects: dict[str, str] = {}
    for reading in readings:
        for row in reading.rows:
            if (
                row.subject
                and row.relation
                and row.object
                and not (reading.closed and row.relation not in reading.schema)
            ):
                rows[row.relation].append(row)
                subjects.setdefault(
                    row.subject, row.subject_type or str(stated.get(row.relation, {}).get("domain", THING))
                )
    return {name: infer(name, rows_of_kind, stated.get(name, {}), subjects) for name, rows_of_kind in rows.items()}


def _own_name(name: str, reading: Reading | None) -> str:
    """What to change, so that a relation of the schema and one of another source do not collide."""
    if reading is not None and (reading.guess or reading.documents):
        return f"take `{name}` out of `relations` in the schema, and yours gets a name of its own"
    return (
        f"take `domain` and `range` out of `{name}` under `relations` in the schema, call it differently in the source"
    )


def _place(reading: Reading, relation: str) -> str:
    """Where a source first uses a relation."""
    return next((row.source for row in reading.rows if row.relation == relation), "a source without rows of it")


def _apart(reading: Reading, taken: Mapping[str, Mapping[str, str]], edited: Mapping[str, object]) -> None:
    """Columns of a table, and keys of documents, of which nobody said what they are, and that are called like a relation
    of other things (`taken`: name -> its domain and range), are relations of their own: the length of a ship is not that of
    a river. The name changes, the words do not."""
    kinds = {name: kind for name, kind in taken.items() if name not in edited}
    names: dict[str, str] = {}
    for name, given in reading.schema.items():
        if name in kinds and any(given.get(side, kind) != kind for side, kind in kinds[name].items()):
            new = f"{given['domain']}_{name}"
            same = new not in taken or all(given.get(side, kind) == kind for side, kind in taken[new].items())
            names[name] = new if same else f"{new}_{given.get('range', 'value')}"
            given.setdefault("label", re.sub(r"[_\-]+", " ", name))
    if not names:
        return
    reading.rows = [replace(r, relation=names[r.relation]) if r.relation in names else r for r in reading.rows]
    reading.schema = {names.get(name, name): given for name, given in reading.schema.items()}
    reading.none = {names.get(name, name): subjects for name, subjects in reading.none.items()}
    reading.columns |= {new: reading.columns.pop(name, name) for name, new in names.items()}


def build(
    readings: Sequence[Reading],
    *,
    known: Iterable[Relation] = (),
    edited: Mapping[str, Mapping[str, object]] | None = None,
    names: Mapping[str, Mapping[str, str]] | None = None,
    elsewhere: bool = False,
) -> Built:
    """A knowledge base of all rows that can be facts; every other row is quarantined.

    Of two objects under a functional relation (a duplicate key) the first row is kept and the second is quarantined,
    with evidence that names both places. `known`: relations whose definition bare rows of the same name adopt;
    `edited`: fields of relations that override everything else (`schema_of`). `names`: type -> name -> the name that it
    stands for, as a person decided; other spellings of one name are merged where that is certain
    (`synth.knowledge.names.resolve`), and stay as aliases. `elsewhere`: whether `edited` was written for other sources,
    so that a relation in it that no row has is passed over (`Built.absent`) and no mistake.

    The records of a table are assumed to be all there are, and a missing value to be unknown: a relation that every
    record of its table has is complete, unless something states whether it is.
    """
    known = list(known)
    taken = {r.name: {"domain": r.domain, "range": r.range} for r in known}
    for reading in readings:
        if reading.guess:
            understand(reading, edited)
        if reading.guess or reading.documents:
            _apart(reading, taken, edited or {})
        for name, given in reading.schema.items():
            taken.setdefault(name, {side: str(given[side]) for side in ("domain", "range") if side in given})
    absent = _absent(readings, edited or {}) if elsewhere else ()
    edited = {name: given for name, given in (edited or {}).items() if name not in absent}
    relations = schema_of(readings, known, edited)
    merged, doubtful = _one_name(readings, relations, names or {})
    if merged:
        relations = schema_of(readings, known, edited)
    declared = {r.name for r in known} | {n for n, given in (edited or {}).items() if "complete" in given}
    declared |= {n for reading in readings for n, given in reading.schema.items() if "complete" in given}
    refused: set[str] = set()  # relations with a quarantined row
    entities: dict[str, Entity] = {}
    facts: dict[str, Fact] = {}
    first: dict[tuple[str, ...], Fact] = {}
    quarantined = [q for reading in readings for q in reading.quarantined]
    produced = len(quarantined)
    for reading in readings:
        for row in reading.rows:
            produced += 1
            fault = problem(row, reading.schema if reading.closed else None, relations)
            if fault:
                quarantined.append(quarantine(fault[0], row.source, fault[1], row.span))
                refused.add(row.relation)
                continue
            relation = relations[row.relation]
            subject = Entity.make(relation.domain, row.subject, source=row.source)
            target = None if relation.literal else Entity.make(relation.range, row.object, source=row.source)
            value = {"literal": row.object} if target is None else {"object": target.id}
            fact = Fact.make(subject.id, relation.name, source=row.source, span=row.span, **value)
            rival = (
                facts.get(fact.id),
                first.get(("of", fact.subject, fact.relation)),
                first.get(("to", fact.relation, fact.value)),
            )
            clash = _clash(row, relation, *rival)
            if clash:
                quarantined.append(quarantine(clash[0], row.source, clash[1], row.span))
                refused |= {row.relation} if clash[0] != "duplicate_row" else set()
                continue
            facts[fact.id] = fact
            first.setdefault(("of", fact.subject, fact.relation), fact)
            first.setdefault(("to", fact.relation, fact.value), fact)
            for e in (subject, target):
                if e is not None:
                    entities.setdefault(e.id, e)
    aliases = [item for reading in readings for item in reading.aliases.items()]
    for (type_, name), others in [*aliases, *(((t, one), (other,)) for (t, other), one in merged.items())]:
        e = entities.get(f"{type_}:{name}")
        if e is not None:
            entities[e.id] = replace(e, aliases=tuple(dict.fromkeys(e.aliases + others)))
    if produced != len(facts) + len(quarantined):
        raise AssertionError(f"{produced} rows came in, {len(facts)} were accepted and {len(quarantined)} quarantined")
    listed = _listed_completely(readings, relations, entities.values(), facts.values(), declared | refused)
    relations = {n: replace(r, complete=True) if n in listed else r for n, r in relations.items()}
    return Built(
        kb=KB(entities.values(), (r for r in relations.values() if len(r.name) <= LONGEST), facts.values()),
        listed=listed,
        doubtful=(*doubtful, *(pair for reading in readings for pair in reading.doubtful)),
        absent=absent,
        quarantined=tuple(quarantined),
        produced=produced,
        accepted=len(facts),
    )


def _absent(readings: Sequence[Reading], edited: Mapping[str, object]) -> tuple[str, ...]:
    """The relations of `edited` that no row has."""
    used = {row.relation for reading in readings for row in reading.rows}
    return tuple(name for name in edited if name not in used)


def _one_name(
    readings: Sequence[Reading], relations: Mapping[str, Relation], decided: Mapping[str, Mapping[str, str]]
) -> tuple[dict[tuple[str, str], str], list[Same]]:
    """Replace entity names in the rows by their canonical names; returns (the replacements, the doubtful names)."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    own: dict[str, set[str]] = defaultdict(set)
    sources: dict[tuple[str, str], set[int]] = defaultdict(set)
    for number, reading in enumerate(readings):
        for type_, names in reading.listed.items():
            own[type_] |= names
            for name in names if len(readings) > 1 else ():
                sources[type_, name].add(number)
        titles = {d.title for d in reading.documents}
        for row in reading.rows:
            if row.relation in relations and row.subject and row.object:
                relation = relations[row.relation]
                counts[relation.domain][row.subject] += 1
                if row.subject in titles:
                    own[relation.domain].add(row.subject)
                    sources[relation.domain, row.subject].add(number)
                if not relation.literal:
                    counts[relation.range][row.object] += 1
    merged, doubtful = resolve(counts, own, decided, sources)
    for reading in readings if merged else ():
        for i, row in enumerate(reading.rows):
            if row.relation in relations:
                relation = relations[row.relation]
                subject = merged.get((relation.domain, row.subject), row.subject)
                object = row.object if relation.literal else merged.get((relation.range, row.object), row.object)
                if (subject, object) != (row.subject, row.object):
                    reading.rows[i] = replace(row, subject=subject, object=object)
    return merged, doubtful


def _listed_completely(
    readings: Sequence[Reading],
    relations: Mapping[str, Relation],
    entities: Iterable[Entity],
    facts: Iterable[Fact],
    but: Set[str],
) -> frozenset[str]:
    """The relations for which every subject is in a table and has an object there, or is stated to have none: anything
    not listed is false. One gap, a source that is not a table, or a quarantined row makes the relation incomplete."""
    domains: set[str] = set()
    users: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        for name in {row.relation for row in reading.rows}:
            users[name].append(reading)
    whole: dict[str, set[str]] = {}
    for name in relations.keys() - but:
        domain = relations[name].domain
        if all(domain in reading.listed for reading in users[name]):
            whole[name] = set().union(*(reading.none.get(name, ()) for reading in users[name]))
            domains.add(domain)
    for fact in facts:
        if fact.relation in whole:
            whole[fact.relation].add(fact.subject.partition(":")[2])
    everyone: dict[str, set[str]] = defaultdict(set)
    for entity in entities:
        if entity.type in domains:
            everyone[entity.type].add(entity.name)
    for domain in domains:
        everyone[domain] |= set().union(*(reading.listed.get(domain, set()) for reading in readings))
    return frozenset(n for n, having in whole.items() if everyone[relations[n].domain] <= having)


def problem(row: Row, closed: Collection[str] | None, relations: Mapping[str, Relation]) -> tuple[str, str] | None:
    """(reason, sentence) if the row alone cannot be a fact. `closed`: the only relations that its source allows."""
    for part in ("subject", "relation", "object"):
        if not getattr(row, part):
            return f"missing_{part}", f"the {part} is missing: give one, or delete the row"
        long = len(getattr(row, part)) > LONGEST and not (
            part == "object" and row.relation in relations and relations[row.relation].literal
        )
        if long:
            return (
                "name_too_long",
                f"the {part} has {len(getattr(row, part)):,} characters, and a name at most {LONGEST:,}: shorten it, or make a value or "
                "a document of it",
            )
    if closed is not None and row.relation not in closed:
        near = difflib.get_close_matches(row.relation, closed, 1, 0.0)
        return (
            "unknown_relation",
            f"the relation {row.relation!r} is not in relations.csv (nearest: {near[0]!r}): fix its spelling, or declare it there",
        )
    relation = relations[row.relation]
    for stated, wanted, part in (
        (row.subject_type, relation.domain, "subject"),
        (row.object_type, relation.range, "object"),
    ):
        if stated and stated != wanted:
            return (
                "wrong_type",
                f"the {part} is said to be a {stated!r}, but that of {row.relation!r} is a {wanted!r}: fix the type, or give "
                "the relation a name of its own",
            )
    if row.subject == row.object and relation.domain == relation.range:
        return (
            "self_reference",
            f"the {relation.label} of {row.subject!r} is said to be itself: fix one of the two, or delete the row",
        )
    if relation.range == "number" and not _NUMBER.fullmatch(row.object):
        return (
            "not_a_number",
            f"{row.object!r} is not a number, as the range of {row.relation!r} asks: write digits with a point, or change "
            "the range to string",
        )
    if relation.range == "year" and not _YEAR.fullmatch(row.object):
        return (
            "not_a_year",
            f"{row.object!r} is not a year, as the range of {row.relation!r} asks: write up to four digits, or change the range to string",
        )
    if relation.range == "date" and not _DATE.fullmatch(row.object):
        return (
            "not_a_date",
            f"{row.object!r} is not a date, as the range of {row.relation!r} asks: write 1789-07-14, or change the range to string",
        )
    return None


def _clash(row: Row, relation: Relation, same: Fact | None, of: Fact | None, to: Fact | None) -> tuple[str, str] | None:
    """(reason, sentence) if the row contradicts an earlier one."""
    if same is not None:
        return "duplicate_row", f"the same fact stands at {same.source}: delete one of the two"
    if relation.functional and of is not None:
        return (
            "duplicate_key",
            f"{row.subject!r} already has a {relation.label} at {of.source} ({of.span}): keep one of the two, or declare "
            f"{row.relation!r} with functional false",
        )
    if relation.inverse_functional and to is not None:
        return (
            "duplicate_object",
            f"{row.object!r} is already the {relation.label} of another at {to.source} ({to.span}): keep one of the two, or "
            f"declare {row.relation!r} with inverse_functional false",
        )
    return None
