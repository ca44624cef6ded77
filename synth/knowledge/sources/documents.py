"""A folder of documents: titles become entities; `key: value` lines, links and a few sentence patterns become facts,
each with its span."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

from synth.knowledge.documents import SUFFIXES, Document, read_document
from synth.knowledge.ingest import LONGEST, Reading, Row
from synth.knowledge.missing import MISSING, stated
from synth.knowledge.heads import head_of, heads_of, spoken_unit
from synth.knowledge.kinds import Kind, kind_of
from synth.knowledge.model_facts import Ask, Outcome, Told, read_facts, relation_keys, verb_words
from synth.knowledge.patterns import (
    KINDS,
    LABELS,
    MANY,
    OF_PEOPLE,
    OF_THINGS,
    OF_WORKS,
    RANGES,
    TEMPLATES,
    also_known_as,
    statements,
    template_words,
)
from synth.knowledge.names import fold, listed, names, plain_value, unbroken
from synth.knowledge.text import tidy
from synth.knowledge.together import Others
from synth.knowledge.words import (
    UNITS,
    counted_things,
    many,
    singular,
    counted_words,
    event_of,
    key_words,
    measured,
    relation_name,
    wording,
)
from synth.quantities import date, quantity, without_note, year

_PAIR = re.compile(
    r"^[ \t]{0,8}(?P<key>[^\W\d_][^:\n]{0,79}?)[ \t]?:[ \t]{1,8}(?P<value>[^\s][^\n]{0,1500}?)[ \t]*$", re.MULTILINE
)
_ABOUT = {"LICENSE", "LICENCE", "NOTICE", "COPYING"}  # files about the collection, not about the world
_NO_KEY = re.compile(r"https?$|\bnote\b|\brefers? to$", re.IGNORECASE)
_THINGS = {"river", "lake", "sea", "ocean", "mountain", "island", "port", "airport", "language", "religion", "desert"}
PAGE = "page"  # the type of a page that does not state one
_MOST = 0.6  # the share of the values of a key that decides its type
_TABLES = {".csv", ".tsv", ".tab", ".xlsx", ".parquet", ".arrow", ".feather", ".jsonl", ".sqlite", ".db", ".sql"}
BY_MODEL, BY_BOTH = " [model]", " [pattern, model]"  # who read a fact, behind its place; a pattern alone is not named
_EACH = 5  # pages on which a thing in a list stands on average, if it is an entity
_WORDS = 8  # the most characters of a value; longer text is prose, which stays in the document


@dataclass(frozen=True)
class _Said:
    """One statement before the type of its relation is known."""

    document: Document
    key: str
    value: str
    kind: str  # "pair" (a line; anything), or as in synth.knowledge.patterns: name, text, date, year
    start: int
    end: int
    about: str = ""  # the title of another page that is its subject
    by_model: bool = False

    @property
    def subject(self) -> str:
        return self.about or self.document.title

    @property
    def place(self) -> str:
        return f"{self.document.id} chars {self.start}-{self.end}{BY_MODEL if self.by_model else ''}"


def documents(
    path: Path,
    name: str,
    *,
    type: str = PAGE,
    title: str | Sequence[str] = "title",
    folders: bool = False,
    mentions: bool = False,
    missing: Collection[str] = MISSING,
    leave: Collection[str] = (),
    others: Others | None = None,
    ask: Ask | None = None,
) -> Reading:
    """Read a folder (or one file) of .md, .txt, .html and .json.

    type       entity type of a page that does not state its own in front matter
    title      path of the title in JSON files, or several, of which the first that exists is used
    folders    a page's type is the name of its folder
    mentions   a title that occurs in another page's text is a separate fact (relation `mention`), as a link is
               (relation `link`)

    missing    texts that say that a value is missing (synth/knowledge/missing.py)
    leave      files below the folder that are sources of their own
    others     what the tables of other sources name (synth/knowledge/together.py)
    ask        a model that reads the sentences too (synth/knowledge/model_facts.py)

    The majority of its values decides the type of a key: numbers (with their unit in the label; a value in another
    unit is quarantined), dates, pages, or short texts. A file that is no text, and a page with the title of an earlier one, are
    quarantined; the latter can still be found by search. Raises ValueError where there is no document at all.
    """
    reading = Reading()
    given = [title] if isinstance(title, str) else title
    reading.documents += _told_apart(_pages(path, name, given, reading, frozenset(leave)))
    if not reading.documents:
        kinds = ", ".join(SUFFIXES)
        raise ValueError(
            f"{name} holds no document ({kinds}){_first(reading)}: add some, or take it out of the list of sources"
        )
    titles: dict[str, Document] = {}
    types: dict[str, str] = {}  # of every title
    about: dict[str, Kind | None] = {}  # of titles whose type nothing states: what the first sentence says
    beside = others or Others()
    things = beside.things(d.title for d in reading.documents)
    for d in reading.documents:
        first = titles.setdefault(d.title, d)
        own = d.type or (Path(d.id).parent.name if folders else "") or (type if type != PAGE else "")
        if not own and d.title not in about:
            about[d.title] = _told_kind(d)
        told = about.get(d.title)
        record = beside.record(d.title, own) or ("" if own else things.get(fold(d.title), ""))
        types.setdefault(d.title, record or own or (told.type if told else type))
        if first is not d:
            reading.quarantine(
                "duplicate_title",
                d.id,
                f"the title {d.title!r} is already that of {first.id}: tell the two apart",
                d.title,
            )
            continue
        further = tuple(
            n
            for n in dict.fromkeys(map(tidy, (*d.aliases, *also_known_as(d.text))))
            if n and n != d.title and len(n) <= 100
        )
        if further:
            reading.aliases[types[d.title], d.title] = further
    reading.titles = dict(types)
    known = _known(titles, reading.aliases)
    pages = {fold(t) for t in titles}
    for key, (record, type_) in beside.records.items():
        if key not in pages and len(record) > 2 and record[0].isalpha() and record.lower() not in known:
            known[record.lower()] = record
            types.setdefault(record, type_)
    by_key: dict[str, list[_Said]] = defaultdict(list)
    _sort(by_key, (s for d in titles.values() for s in _statements(d, known, mentions)), about)
    if ask is not None:
        told = read_facts(titles.values(), known, types, ask)
        _sort(by_key, list(_by_model(reading, told, by_key, known)), about)
    for key, some in by_key.items():
        by_key[key] = list(compress(some, stated(reading, (s.value for s in some), missing)))
    for relation, label, some in _by_type(by_key, types):
        _settle(reading, relation, label, some, known, types, type, by_key)
    _without_said(reading)
    return reading


def _without_said(reading: Reading) -> None:
    """Leave out links and mentions of things about which the page says more: "Teacher: [Ilse Marten](...)"."""
    bare = {r for r, given in reading.schema.items() if given.get("label") in ("link", "mention")}
    stated = {(row.subject, row.object) for row in reading.rows if row.relation not in bare} if bare else set()
    reading.rows = [r for r in reading.rows if r.relation not in bare or (r.subject, r.object) not in stated]
    for relation in bare - {row.relation for row in reading.rows}:
        del reading.schema[relation]


def _told_apart(pages: Iterable[Document]) -> Iterator[Document]:
    """Makes the titles of pages distinct: if two pages with different content share a title, the second gets its folder
    added, or its file name if both are in one folder."""
    taken: dict[str, tuple[str, str]] = {}
    for d in pages:
        place = Path(d.id)
        text, folder = taken.get(d.title, (d.text, ""))
        if text != d.text and "#" not in d.id:
            own = (place.parent.name if str(place.parent) != folder else "", place.stem)
            further = (f"{d.title} ({n.replace('_', ' ')})" for n in own if n)
            d = replace(d, title=next((n for n in further if n not in taken), d.title))
        taken.setdefault(d.title, (d.text, str(place.parent)))
        yield d


def _first(reading: Reading) -> str:
    return f" that can be read, the first: {reading.quarantined[0].evidence}" if reading.quarantined else ""


def _pages(
    path: Path, name: str, titles: Sequence[str], reading: Reading, leave: Collection[str] = ()
) -> Iterator[Document]:
    files = sorted(p for p in path.rglob("*") if p.is_file() and not p.is_symlink()) if path.is_dir() else [path]
    for file in files:
        label = f"{name.rstrip('/')}/{file.relative_to(path).as_posix()}" if path.is_dir() else name
        if leave and file.relative_to(path).as_posix() in leave:
            continue
        if any(part.startswith(".") for part in file.relative_to(path).parts):
            reading.skipped[label] = "a hidden file"
            continue
        if file.stem.upper() in _ABOUT:
            reading.skipped[label] = "it is about the collection (a licence)"
            continue
        if file.suffix.lower() not in SUFFIXES:
            table = file.suffix.lower() in _TABLES
            reading.skipped[label] = (
                "a table is no document: name the folder without `kind: documents`, or the file as a source of its own"
                if table
                else f"no reader of documents knows {file.suffix or 'files without a suffix'}"
            )
            continue
        try:
            for d in read_document(file, label, titles=titles):
                if len(d.title) <= LONGEST:
                    yield d
                    continue
                why = f"the title has {len(d.title):,} characters, and a name at most {LONGEST:,}: give the page a shorter one"
                reading.quarantine("name_too_long", d.id, why, d.title)
        except RecursionError:
            why = "the file is left out: it is nested too deeply: flatten it, or move it away"
            reading.quarantine("not_text", label, why, "")
        except (ValueError, OSError) as error:
            reason = "not_text" if isinstance(error, ValueError) else "unreadable"
            reading.quarantine(reason, label, f"the file is left out: {error}: fix it, or move it away", "")


def _known(titles: Iterable[str], aliases: Mapping[tuple[str, str], tuple[str, ...]]) -> dict[str, str]:
    """Name in lower case -> title. An alias of two pages refers to neither."""
    out: dict[str, str] = {}
    bearers = Counter(n.lower() for others in aliases.values() for n in others)
    for (_, title), others in aliases.items():
        for n in others:
            if bearers[n.lower()] == 1:
                out[n.lower()] = title
    out.update({t.lower(): t for t in titles})
    return out


# ---- what a page says


def _statements(d: Document, known: Mapping[str, str], mentions: bool) -> Iterator[_Said]:
    for m in _PAIR.finditer(d.text):
        if any(start <= m.start("key") < end for start, end in d.quiet):
            continue
        key = tidy(m["key"]).strip("*- ")
        if 0 < len(key.split()) <= 9 and not _NO_KEY.search(key) and not d.title.startswith(key):
            value = m["value"]
            if (
                (head := value.partition(":")[0])
                and len(head) < len(value)
                and key.lower().rstrip(")").endswith(head.lower())
            ):
                value = value[len(head) + 1 :].strip()  # "Land use (arable land): arable land: 31.4%"
            yield _Said(
                d,
                key if key[:2].isupper() else key[:1].lower() + key[1:],
                value,
                "pair",
                m.start("key"),
                m.end("value"),
            )
    for f in statements(d.text, d.title, d.aliases):
        if any(start <= f.start < end for start, end in d.quiet):
            continue
        yield _Said(d, f.relation, f.value, f.kind, f.start, f.end)
    for target, start, end in d.links:
        title = known.get(target.lower()) or known.get(d.text[start:end].lower())
        if title and title != d.title:
            yield _Said(d, "link", title, "link", start, end)
    if mentions:
        for start, end, title in mentioned(d.text, known):
            if title != d.title:
                yield _Said(d, "mention", title, "link", start, end)


_EVENT = re.compile(
    r"(?:The )?(?:Death|Murder|Killing|Assassination|Execution|Suicide|Disappearance|Kidnapping|Trial)s? of [A-Z]"
)


def _by_model(
    reading: Reading, read: Outcome, by_key: Mapping[str, list[_Said]], known: Mapping[str, str]
) -> Iterator[_Said]:
    """The statements of a model, each under the key and in the kind of those that say the same: of a sentence pattern, of
    `key: value` lines, or of their own. What it wrote and is no fact is quarantined."""
    reading.by_model, reading.stopped = read.counts, read.stopped
    for r in read.refused:
        _refuse_line(reading, r.reason, r.why, r.line, r.document, r.start, r.end)
    lines = {relation_name(key): key for key, some in by_key.items() if some and some[0].kind == "pair"}
    own: dict[str, list[Told]] = defaultdict(list)
    for t in read.facts:
        for key in relation_keys(t.relation):
            form, value = KINDS.get(key, ""), t.value
            if key in lines:
                form = "pair"
            elif form == "date":
                value = date(t.value) or ""
            elif form == "year":
                value = year(t.value) or ""
            elif form in ("name", "text") and re.match(r"\d", t.value):
                value = ""
            if not form:
                own[key].append(t)
            elif value:
                yield _told(t, lines.get(key, key), value, form)
            if value:
                break
        else:
            line = f"{t.subject} | {t.relation} | {t.value}"
            why = "the object is no date, year or name, as this relation asks"
            _refuse_line(reading, "other_kind", why, line, t.document, t.start, t.end)
    for key, some in own.items():
        n = len(some)
        measured_ = sum(date(t.value) is not None or quantity(t.value) is not None for t in some)
        pages = sum(t.value.lower() in known for t in some)
        form = "pair" if measured_ >= _MOST * n else "name" if 2 * pages >= n else "text"
        for t in some:
            yield _told(t, key, t.value, form)


def _told(t: Told, key: str, value: str, kind: str) -> _Said:
    about = "" if t.subject == t.document.title else t.subject
    return _Said(t.document, key, value, kind, t.start, t.end, about, by_model=True)


def _refuse_line(reading: Reading, reason: str, why: str, line: str, d: Document, start: int, end: int) -> None:
    """Quarantine a line that a model wrote."""
    place = f"{d.id} chars {start}-{end}{BY_MODEL}"
    why = f"a model wrote {line!r}, but {why}: add it to a table if it is right"
    reading.quarantine(f"model_{reason}", place, why, d.text[start:end][:500])


def _told_kind(d: Document) -> Kind | None:
    """What the first sentences say about the type of a page: by its kind, else by statements that apply only to people,
    or to works."""
    if _EVENT.match(d.title):  # its sentences are about the person who died
        return None
    facts = list(statements(d.text, d.title, d.aliases))
    kind = next((kind_of(f.value) for f in facts if f.relation == "kind"), None)
    if kind is not None:
        return kind
    relations = {f.relation for f in facts}
    if relations & OF_PEOPLE and not relations & OF_WORKS:
        return Kind("person", "", (), "")
    return Kind("film", "", (), "") if relations & {"directed_by", "starring"} and not relations & OF_PEOPLE else None


def _sort(by_key: dict[str, list[_Said]], some: Iterable[_Said], about: Mapping[str, Kind | None]) -> None:
    """Add statements, or their parts, under their keys."""
    for s in some:
        for part in _parts(s, about[s.subject]) if s.subject in about else (s,):
            by_key[part.key].append(part)


def _parts(s: _Said, kind: Kind | None) -> Iterator[_Said]:
    """The statements about a page whose type only its first sentence states: the kind, part by part, without attributes
    that its kind cannot have (a film is not born)."""
    person = kind is not None and kind.type == "person"
    if s.kind in ("pair", "link") or (s.key != "kind" and s.key not in (OF_THINGS if person else OF_PEOPLE)):
        yield s
    elif s.key == "kind" and kind is not None:
        about = "occupation" if person else "genre"
        parts = [("released_year", kind.year, "year"), *(("nationality", n, "thing") for n in kind.nationalities)]
        for key, value, how in (*parts, (about, kind.about, "thing")):
            if value:
                yield replace(s, key=key, value=value, kind=how)


def mentioned(text: str, known: Mapping[str, str], *, longest: int = 8) -> Iterator[tuple[int, int, str]]:
    """(start, end, title) of the names of pages in a text, the longest first: "New York City" is not "New York". Names
    of one short word, or without a capital letter, are not mentions. Linear: one look-up per position and length."""
    words = list(re.finditer(r"[\w'\u2019-]+", text[:200_000]))
    i = 0
    while i < len(words):
        for n in range(min(longest, len(words) - i), 0, -1):
            name = text[words[i].start() : words[i + n - 1].end()]
            title = known.get(name.lower()) if len(name) > 3 and name[0].isupper() else None
            if title is not None:
                yield words[i].start(), words[i + n - 1].end(), title
                i += n - 1
                break
        i += 1


def _by_type(by_key: Mapping[str, list[_Said]], types: Mapping[str, str]) -> Iterator[tuple[str, str, list[_Said]]]:
    """(relation, label, statements) of each key; a key that pages of several types use is a relation of each type."""
    for key, some in by_key.items():
        for kind in dict.fromkeys(types[s.subject] for s in some):
            mine = [s for s in some if types[s.subject] == kind]
            relation = relation_name(key if len(mine) == len(some) else f"{kind} {key}")
            yield relation, LABELS.get(key, key.replace("_", " ")), mine


# ---- the type of a relation


def _settle(
    reading: Reading,
    relation: str,
    label: str,
    some: list[_Said],
    known: Mapping[str, str],
    types: Mapping[str, str],
    type: str,
    keys: Collection[str],
) -> None:
    """The rows of one relation, and its schema. keys: of all relations, as they are written."""
    kind, unit = _kind(some, known, label)
    domain = types[some[0].subject]
    words: dict[str, str] = {}
    if kind == "number":
        words = _number_words(_phrase(reading, some[0], label, domain, keys), domain, unit)
        label = words["label"]
    thing = _thing(label) if kind in ("name", "text", "list") and some[0].kind == "pair" else ""
    if thing and thing not in types.values():
        kind, known = "things", {}
    elif kind == "list":
        thing = _shared(label, some, types)
    if kind == "thing":  # of a kind: a nationality, a genre
        kind, thing, known = "things", some[0].key, {}
    pages = Counter(types[known[x.lower()]] for s in some for x in (s.value, *names(s.value)) if x.lower() in known)
    ranges = {"number": "number", "year": "year", "date": "date", "text": "string", "list": "string"}
    listed_ = thing if kind in ("things", "list") else ""
    range_ = listed_ or ranges.get(kind) or (pages.most_common(1)[0][0] if pages else type)
    if type == PAGE and range_ not in ranges.values():  # the sentence pattern decides, not the pages that exist
        range_ = RANGES.get(some[0].key, range_) if some[0].kind == "name" else range_
    if some[0].kind == "pair" and range_ in ("year", "date"):
        label = _dated(label, domain, range_)
    if kind != "number":
        label = _phrase(reading, some[0], label, domain, keys, "" if range_ in ranges.values() else range_)
    if some[0].kind == "pair" and range_ not in ("number", "year", "date"):
        words = key_words(label, domain, range_)
    reading.schema[relation] = {"domain": domain, "label": label, "range": range_, **words}
    if some[0].kind != "pair" and some[0].key in TEMPLATES:
        reading.schema[relation] |= template_words(some[0].key, domain, range_)
    elif some[0].by_model and some[0].key not in LABELS:
        reading.schema[relation] |= verb_words(label, some[0].document.text[some[0].start : some[0].end])
    if kind == "date":
        reading.schema[f"{relation}_year"] = {
            "domain": domain,
            "range": "year",
            "label": f"{label.removesuffix(' date')} year"
            if label.endswith(" date")
            else f"year of {label.removeprefix('date of ')}",
        }
    rows = _Rows(reading, label, domain, known)
    for s in some:
        for suffix, value in _values(s, kind, unit, known, reading):
            if value == s.subject and kind not in ("things", "list"):  # said of itself
                continue
            rows.add(s, relation + suffix, value)


class _Rows:
    """Adds the rows of one relation to a reading: each fact once, and of what a model read nothing that contradicts the
    rest."""

    def __init__(self, reading: Reading, label: str, domain: str, known: Mapping[str, str]) -> None:
        self.reading, self.label, self.domain, self.known = reading, label, domain, known
        self.places: dict[tuple[str, str, str], int] = {}  # -> the number of its row, -1 if it has none
        self.objects: dict[tuple[str, str], str] = {}  # subject, relation -> the first object
        self.plain: set[str] = set()  # relations with rows that no model read
        self.several: set[str] = set()  # relations of which a subject has several objects

    def add(self, s: _Said, relation: str, value: str) -> None:
        first = self.objects.get((s.subject, relation), value)
        value = first if s.by_model and fold(first) == fold(value) else value  # another spelling of it
        key, span = (s.subject, relation, value), s.document.text[s.start : s.end]
        if key in self.places:  # said twice
            if s.by_model:
                self._also_by_model(self.places[key])
            return
        self.places[key] = -1
        if s.kind != "link" and not attested(value, span, self.known):
            why = f"{value!r} is not what the text says: fix the text"
            self.reading.quarantine("not_in_span", s.place, why, span[:500])
            return
        if first != value and s.by_model and self._is_single(s.key, relation):
            line, why = f"{s.subject} | {self.label} | {value}", f"its {self.label} is {first!r} already"
            _refuse_line(self.reading, "contradicts", why, line, s.document, s.start, s.end)
            return
        self.objects.setdefault(key[:2], value)
        if first != value:
            self.several.add(relation)
        if not s.by_model:
            self.plain.add(relation)
        self.places[key] = len(self.reading.rows)
        self.reading.rows.append(
            Row(
                subject=s.subject,
                relation=relation,
                object=value,
                subject_type=self.domain,
                source=s.place,
                span=span[:500],
            )
        )

    def _is_single(self, key: str, relation: str) -> bool:
        """Whether a relation has one object for each subject, as patterns and lines have it."""
        known = key in KINDS or relation in self.plain
        return known and key not in MANY and relation not in self.several

    def _also_by_model(self, at: int) -> None:
        """Note that a model read a row that a pattern read."""
        if at >= 0 and not self.reading.rows[at].source.endswith((BY_MODEL, BY_BOTH)):
            self.reading.rows[at] = replace(self.reading.rows[at], source=self.reading.rows[at].source + BY_BOTH)


def _lists(label: str, some: list[_Said]) -> bool:
    """Whether most values of a key of many things ("exports - commodities", "national colour(s)") are lists in one text."""
    if not (many(label) or "(s)" in label):
        return False
    return sum(len(listed(s.value)) > 1 for s in some) >= _MOST * len(some)


def _shared(label: str, some: list[_Said], types: Mapping[str, str]) -> str:
    """The type of the things in lists, if each stands on five pages on average: "agricultural products" -> product; else "",
    and they are texts: a thing of one page leads nowhere."""
    counts = Counter(x for s in some for x in listed(s.value))
    thing = singular(head_of(label).split(" ")[-1]).lower()
    return thing if thing.isalpha() and counts.total() >= _EACH * len(counts) and thing not in types.values() else ""


def _phrase(reading: Reading, first: _Said, label: str, domain: str, keys: Collection[str], thing: str = "") -> str:
    """The label of a key as a phrase, where no other relation of the type has it. thing: the type of its values."""
    taken = {given["label"] for given in reading.schema.values() if given["domain"] == domain}.union(keys)
    some = heads_of(label, thing, domain) if first.kind == "pair" else ()
    return next((phrase for phrase in some if phrase != label and phrase not in taken), label)


def _dated(label: str, domain: str, range: str) -> str:
    """The label of years or dates: "opened" -> "opening year"."""
    label = wording(label, domain, range)["label"] if event_of(label) != label else label
    return re.sub(r"^date of ", "year of ", label) if range == "year" else label


def _number_words(label: str, domain: str, unit: str) -> dict[str, str]:
    """The words of a key of numbers, its label among them."""
    if unit and (said := unit if unit.lower() in UNITS else spoken_unit(unit)):
        return measured(label, domain, said)
    return {"label": f"{label} in {unit}"} if unit else counted_words(counted_things(label))


def _thing(label: str) -> str:
    """The kind of thing that the last word of a label names: "major rivers (by length)" -> river; "" for another
    word. Rivers called Niger and Senegal are not the countries that have pages."""
    head = re.split(r" \(| - | (?:of|in|by|at|on|for) |, ", label.lower())[0].split(" ")[-1]
    return head if head in _THINGS else head.removesuffix("s") if head.removesuffix("s") in _THINGS else ""


def _kind(some: list[_Said], known: Mapping[str, str], label: str) -> tuple[str, str]:
    """(number, year, date, text, list or name; the unit of most numbers)."""
    if some[0].kind != "pair":
        return {"link": "name"}.get(some[0].kind, some[0].kind), ""
    n = len(some)
    quantities = [q for s in some if (q := quantity(s.value))]
    if sum(date(s.value) is not None for s in some) >= _MOST * n:
        return "date", ""
    if len(quantities) >= _MOST * n:
        if all(q.unit == "" and year(q.number) for q in quantities):
            return "year", ""
        return "number", Counter(q.unit for q in quantities).most_common(1)[0][0]
    items = [x for s in some for x in names(s.value)]
    if items and 2 * sum(x.lower() in known for x in items) >= len(items):
        return "name", ""
    return "list" if _lists(label, some) else "text", ""


def _values(s: _Said, kind: str, unit: str, known: Mapping[str, str], reading: Reading) -> Iterable[tuple[str, str]]:
    """(suffix of the relation, object) of a statement, given the type of its relation."""
    place, span = s.place, s.document.text[s.start : s.end][:500]
    if s.kind != "pair":
        if kind == "date":
            return [("", s.value), ("_year", str(int(s.value[:4])))]
        return [("", known.get(s.value.lower(), unbroken(s.value)))]
    if kind in ("number", "year"):
        q = quantity(s.value)
        if q is None or (kind == "year" and not year(q.number)):
            why = f"{s.key!r} is a {kind} elsewhere, here it is more or less than that: fix the line"
            reading.quarantine("not_a_quantity", place, why, span)
            return []
        if q.unit != unit:
            why = f"{s.key!r} is in {unit or 'plain numbers'!r} elsewhere, here in {q.unit!r}: convert it"
            reading.quarantine("other_unit", place, why, span)
            return []
        return [("", q.number)]
    if kind == "date":
        day = date(s.value)
        if day is None:
            reading.quarantine(
                "not_a_date",
                place,
                f"{s.key!r} is a date elsewhere, here it is more or less than that: fix the line",
                span,
            )
            return []
        return [("", day), ("_year", str(int(day[:4])))]
    if kind == "list":
        if not (texts := listed(s.value)):
            reading.quarantine(
                "unclear", place, f"{s.key!r} lists things elsewhere, here it does not: write them", span
            )
        return [("", unbroken(text)) for text in texts]
    if kind in ("name", "things"):
        return [("", known.get(x.lower(), x)) for x in names(s.value) if x[:1].isupper() and len(x.split()) <= _WORDS]
    parts = without_note(s.value).split(";")
    short = len(parts) <= _WORDS and all(len(part.split()) <= _WORDS for part in parts)  # else it is prose
    texts = plain_value(s.value) if short else []
    if short and not texts:
        reading.quarantine("unclear", place, f"{s.key!r} does not say one answer: write the name alone", span)
    return [("", unbroken(text)) for text in texts if len(text.split()) <= _WORDS]


def attested(value: str, span: str, known: Mapping[str, str]) -> bool:
    """A second check that shares no code with the reader: the words of the value (or those of a name of its page) occur
    in the span; for a number its leading digits, for a date year and day."""
    low = span.lower()
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        return value in low or (value[:4].lstrip("0") in low and str(int(value[8:])) in re.findall(r"\d+", low))
    if re.fullmatch(r"-?\d+(\.\d+)?", value):
        digits = value.lstrip("-").replace(".", "").strip("0")
        return digits in re.sub(r"[^\d]", "", low) or not digits
    words = re.findall(r"\w+", value.lower())
    if all(w in low for w in words):
        return True
    return any(title == value and name in low for name, title in known.items())
