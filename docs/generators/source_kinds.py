"""docs/examples/source-kinds.md: forty questions of each kind of source, as they come out. `make examples` writes it.

The sources are made up and written here, one of each kind that `espalier kb build` understands without a schema; the
museum is that of the tests. Nothing is chosen by hand: of the questions that were accepted, forty are drawn from the
easiest to the hardest, as `espalier questions show` draws them.
"""

from __future__ import annotations

import csv
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path

from synth.questions.reprove import Reprover, reprove
from synth.types import Problem
from tasks.core.paths import CODE as ROOT
from tasks.knowledge import bases, knowledge
from tasks.knowledge.guess import sources_at
from tasks.problems import grow
from tests.support import museum

PAGE = ROOT / "docs" / "examples" / "source-kinds.md"
SHOWN, WANTED = 40, 120
TOWNS = ("Olmhaven", "Karsund", "Brakne", "Verlo", "Tarnby", "Lisgar", "Morvik", "Hestan", "Quillmouth", "Ardsea")
LANDS = ("Norland", "Vesta", "Corrin", "Ildra", "Mereland")
FIRST = ("Anna", "Otto", "Mira", "Piet", "Ilse", "Jonas", "Nadia", "Emil", "Greta", "Pavel", "Sanne", "Viktor", "Lene")
LAST = ("Berg", "Klein", "Solis", "Dekker", "Marten", "Veld", "Foss", "Sandor", "Lindqvist", "Orlik", "Hale", "Ryle")
BEFORE = ("Long", "Grey", "North", "Salt", "Cold", "Raven", "Seal", "Birch", "Stone", "Wolf", "White", "Heron", "Ash")
AFTER = ("holm", "ness", "sey", "fell", "wick", "mere", "stead", "horn")


def people(rng: random.Random, n: int) -> list[str]:
    return [f"{a} {b}" for a, b in rng.sample(list(product(FIRST, LAST)), n)]


def places(rng: random.Random, n: int) -> list[str]:
    return [a + b for a, b in rng.sample(list(product(BEFORE, AFTER)), n)]


def documents(folder: Path) -> Path:
    """Pages about islands, with lines `key: value` and links."""
    rng = random.Random(1)
    islands, keepers = places(rng, 70), people(rng, 30)
    crops, tongues = ("barley", "rye", "flax", "apples", "kelp"), ("Norse", "Ildrin", "Old Corrin", "Mere Sea Creole")
    for name in islands:
        lines = ["---", "type: island", "---", f"# {name}", ""]
        lines += [f"Main town: {rng.choice(TOWNS)}", f"Area: {rng.randrange(4, 900)} sq km"]
        lines += [f"Population: {rng.randrange(80, 9000):,}", f"Settled: {rng.randrange(1150, 1900)}"]
        lines += [f"Language: {rng.choice(tongues)}", f"Main crop: {rng.choice(crops)}"]
        lines += [f"Lighthouse keeper: [{k}]({k.replace(' ', '%20')}.md)" for k in rng.sample(keepers, 1)]
        lines += [f"Ferry to: [{n}]({n}.md)" for n in rng.sample([x for x in islands if x != name], 1)]
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in keepers:
        lines = ["---", "type: person", "---", f"# {name}", "", f"Born: {rng.randrange(1920, 1990)}"]
        lines += [f"Birthplace: {rng.choice(TOWNS)}", f"Occupation: {rng.choice(('fisher', 'pilot', 'teacher'))}"]
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def paragraphs(folder: Path) -> Path:
    """Short articles about films and those who made them, in sentences alone."""
    rng = random.Random(2)
    crew = people(rng, 60)
    nouns, kinds = ("Quay", "Winter", "Letter", "Bridge", "Orchard", "Ferry", "Tide"), ("drama", "comedy", "crime")
    films = [f"The {a} {b}" for a, b in rng.sample(list(product(BEFORE, nouns)), 80)]
    pages = []
    for name in crew:
        day = f"{rng.randrange(1, 29)} {rng.choice(('March', 'June', 'October'))} {rng.randrange(1901, 1960)}"
        job = rng.choice(("film director", "actor", "screenwriter"))
        text = f"{name} (born {day} in {rng.choice(TOWNS)}) was a Norwegian {job}. "
        pages.append({"title": name, "text": text + f"They studied at the University of {rng.choice(TOWNS)}."})
    for name in films:
        director, writer, *stars = rng.sample(crew, 4)
        text = f"{name} is a {rng.randrange(1930, 1999)} Danish {rng.choice(kinds)} film directed by {director} and "
        text += f"starring {stars[0]} and {stars[1]}. It was written by {writer}."
        pages.append({"title": name, "text": text})
    path = folder / "articles.json"
    path.write_text(json.dumps(pages, indent=1), encoding="utf-8")
    return path


def table(folder: Path) -> Path:
    """One flat table of lighthouses."""
    rng = random.Random(3)
    path = folder / "lighthouses.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(
            ["Name", "Country", "Coast", "Height (m)", "First lit", "Light colour", "Built by", "isAutomated", "Range"]
        )
        builders = people(rng, 12)
        for name in places(rng, 100):
            row = [name, rng.choice(LANDS), rng.choice(("north", "south", "west", "east")), rng.randrange(9, 80)]
            row += [rng.randrange(1790, 1960), rng.choice(("white", "red", "green")), rng.choice(builders)]
            out.writerow([*row, rng.choice(("yes", "no")), f"{rng.randrange(6, 30)} km"])
    return path


def database(folder: Path) -> Path:
    """A library as a script of SQL, with foreign keys."""
    rng = random.Random(4)
    lines = [
        "CREATE TABLE publishers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, founded INTEGER);",
        "CREATE TABLE authors (id INTEGER PRIMARY KEY, name TEXT, country TEXT, date_of_birth TEXT);",
        "CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, author_id INTEGER REFERENCES authors(id), publisher_id "
        "INTEGER REFERENCES publishers(id), genre TEXT, year INTEGER, pages INTEGER);",
        "CREATE TABLE members (id INTEGER PRIMARY KEY, name TEXT, home_town TEXT, joined TEXT);",
        "CREATE TABLE loans (member_id INTEGER REFERENCES members(id), book_id INTEGER REFERENCES books(id));",
    ]
    people_ = people(rng, 75)
    titles = [f"The {a} {b}" for a, b in product(BEFORE[:10], ("House", "Island", "Map", "Sea", "Garden", "Clock"))]

    def day(low: int, high: int) -> str:
        return f"{rng.randrange(low, high)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"

    def row(name: str, *cells: object) -> None:
        lines.append(
            f"INSERT INTO {name} VALUES ({', '.join(json.dumps(c).replace(chr(34), chr(39)) for c in cells)});"
        )

    for i, name in enumerate(("Tern Press", "Anchor Books", "Lantern House", "Verlo Editions", "Old Mill Press"), 1):
        row("publishers", i, name, rng.choice(TOWNS), rng.randrange(1850, 1990))
    for i, name in enumerate(people_[:25], 1):
        row("authors", i, name, rng.choice(LANDS), day(1900, 1980))
    for i, title in enumerate(titles, 1):
        genre, year = rng.choice(("novel", "travel", "poetry", "history")), rng.randrange(1930, 2020)
        row("books", i, title, rng.randrange(1, 26), rng.randrange(1, 6), genre, year, rng.randrange(60, 900))
    for i, name in enumerate(people_[25:], 1):
        row("members", i, name, rng.choice(TOWNS), day(1990, 2024))
    for member in range(1, 51):
        for book in rng.sample(range(1, 61), rng.randrange(1, 5)):
            row("loans", member, book)
    path = folder / "library.sql"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def records(folder: Path) -> Path:
    """A JSON list of mountain huts inside an object."""
    rng = random.Random(5)
    names, wardens = [f"{p} Hut" for p in places(rng, 80)], people(rng, 25)
    beside: dict[str, set[str]] = {n: set() for n in names}
    for i, name in enumerate(names):
        for other in rng.sample(names[i + 1 :], min(2, len(names) - i - 1)):
            beside[name].add(other)
            beside[other].add(name)
    huts = [
        {
            "name": name,
            "valley": f"{rng.choice(BEFORE)} Valley",
            "warden": rng.choice(wardens),
            "beds": rng.randrange(6, 120),
            "elevation_m": rng.randrange(700, 3400),
            "opened": rng.randrange(1870, 2015),
            "owner": rng.choice(("Alpine Club of Vesta", "Corrin Ramblers", "Friends of the Fells")),
            "neighbours": sorted(beside[name]),
            "services": rng.sample(["meals", "showers", "post office", "radio"], 2),
        }
        for name in names
    ]
    path = folder / "huts.json"
    path.write_text(json.dumps({"updated": "2026-03-01", "huts": huts}, indent=1), encoding="utf-8")
    return path


def triples(folder: Path) -> Path:
    """A railway as N-Triples, with labels in English."""
    rng = random.Random(6)
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    of = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
    iri = lambda text: f"<https://example.org/{text.replace(' ', '_')}>"  # noqa: E731
    lines, stations, architects = [], [f"{p} Station" for p in places(rng, 80)], people(rng, 16)
    railways = ("Coast Line", "Valley Line", "Harbour Line", "Fell Line", "Border Line")
    named = {**dict.fromkeys(stations, "Station"), **dict.fromkeys(architects, "Architect")}
    named |= {
        **dict.fromkeys(railways, "RailwayLine"),
        **dict.fromkeys(TOWNS, "Town"),
        **dict.fromkeys(LANDS, "Country"),
    }
    for name, type_ in named.items():
        lines += [f'{iri(name)} {label} "{name}"@en .', f"{iri(name)} {of} <https://example.org/ontology#{type_}> ."]

    def say(subject: str, relation: str, value: object) -> None:
        text = iri(str(value)) if value in named else f'"{value}"'
        lines.append(f"{iri(subject)} <https://example.org/ontology#{relation}> {text} .")

    for name in stations:
        say(name, "line", rng.choice(railways))
        say(name, "town", rng.choice(TOWNS))
        say(name, "architect", rng.choice(architects))
        say(name, "openingYear", rng.randrange(1850, 1990))
        say(name, "numberOfPlatforms", rng.randrange(1, 14))
        say(name, "nextStation", rng.choice([s for s in stations if s != name]))
    for name in architects:
        say(name, "birthPlace", rng.choice(TOWNS))
        say(name, "birthYear", rng.randrange(1800, 1950))
    for name in TOWNS:
        say(name, "country", rng.choice(LANDS))
        say(name, "population", rng.randrange(2000, 90000))
    path = folder / "railway.nt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def both(folder: Path) -> Path:
    """The museum of the tests: pages, a CSV file, a JSON list, a spreadsheet, a Word file."""
    museum.write(folder / "museum")
    return folder / "museum"


KINDS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "Documents": ("pages about islands, with lines `key: value` and links", documents),
    "Free text": ("short articles about films, in sentences alone", paragraphs),
    "Flat table": ("a CSV file of lighthouses", table),
    "SQL database": ("a library with foreign keys", database),
    "JSON list": ("mountain huts", records),
    "RDF": ("a railway as N-Triples", triples),
    "Folder of documents and tables": ("a museum", both),
}


def questions(write: Callable[[Path], Path], folder: Path) -> tuple[dict, list[Problem], Counter[str]]:
    """(card of the base, accepted questions, quarantined by reason) of a source."""
    (folder / "source").mkdir(parents=True)
    sources = sources_at(write(folder / "source"))
    card = bases.build_base(sources, folder / "kb")
    cells = grow.cells({"train": WANTED}, (2, 3))
    accepted, quarantined = grow.grow(folder / "kb", cells, tries=4, seed=0, closed_world=True)
    proved = reprove(Reprover(knowledge.kb_at(folder / "kb")), accepted)["proved"]
    assert proved == len(accepted), f"{proved} of {len(accepted)} questions proved again"
    return card, accepted, Counter(q.reason for q in quarantined)


def section(kind: str, folder: Path) -> list[str]:
    """The part of the page about a kind of source, made in a folder."""
    what, write = KINDS[kind]
    card, accepted, reasons = questions(write, folder)
    why = ", ".join(f"{n} `{reason}`" for reason, n in reasons.most_common(3))
    lines = [
        "",
        f"## {kind}",
        "",
        f"{what}: {card['facts']:,} facts. Of {WANTED} questions asked for {len(accepted)} were",
    ]
    lines[-1] += f" accepted, all proved again; most were refused as {why}."
    shown = [f"{i}. {p.question} *{p.answer}*" for i, p in enumerate(grow.rising(accepted, SHOWN), 1)]
    return [*lines, "", *shown]


def page(kinds: Sequence[str] = tuple(KINDS)) -> str:
    """The page, or its head and the parts about some kinds of source."""
    lines = HEAD.splitlines()
    with tempfile.TemporaryDirectory() as folder:
        for i, kind in enumerate(kinds):
            lines += section(kind, Path(folder) / str(i))
    return "\n".join([*lines, ""])


HEAD = """\
# Questions of each kind of source

Which question this page answers: how do questions sound that are grown from my kind of files, without a schema?

Forty of each kind, as they come out: none is chosen or changed by hand. The sources are made up, written by
[docs/generators/source_kinds.py](../generators/source_kinds.py) (the museum by `tests/support/museum.py`) and read as
`espalier kb build` reads them, without a schema. Questions are of depth 2 and 3 and of all levels, with `--closed-world`,
drawn from the easiest to the hardest. `make examples` writes the page; `tests/docs/test_source_kinds_page.py` checks each
question by rules of grammar ([tests/support/grammar.py](../../tests/support/grammar.py)) and asserts that the page is
what the code writes.

One reader read them aloud in November 2026, and forty others of each kind (another seed), and mended in the code what
recurs; then a third forty of each (a third seed), which no mend was made from. Natural is what a person could say; the
rest is awkward (grammatical, but nobody says it) or wrong (ungrammatical, or it misleads). Of forty:

| kind | this page: natural before | natural now | other seed: natural before | natural now | third seed: natural now |
|---|---:|---:|---:|---:|---:|
| Documents | 26 | 32 | 26 | 32 | 35 |
| Free text | 30 | 40 | 31 | 38 | 39 |
| Flat table | 2 | 39 | 1 | 39 | 38 |
| SQL database | 0 | 39 | 3 | 40 | 39 |
| JSON list | 13 | 30 | 9 | 32 | 34 |
| RDF | 3 | 35 | 7 | 34 | 36 |
| Folder of documents and tables | 9 | 27 | 7 | 29 | 27 |

Wrong were 20 and 19 of the SQL database before ("an author who is in Norland" of where she is from, and a clause within
a clause that nobody can follow) and one of the folder ("the painting of no loan, that has a name"); none is now. Mended
were, among others, "the first lighting year", "the next station of this station", "a hut with White Valley as its
valley", "with fisher as their occupation", "has Lisgar as their birthplace", "has the same school as", "whose publisher
is one of which the founding year is", "a lighthouse with south as its coast", "the author is the author of a book", and
a member that "has" what was borrowed. What still sounds awkward, and is left:

- "An insurance of about 76,000": a column is called so, and the words do not know that it is a sum of money.
- "The next station after some station", "wrote some book": a clue that says only that there is one.
- "It has the same lighthouse keeper as the island that has a ferry from the island that has a ferry from Coldsey", "a
  neighbour of a hut that is a neighbour of a hut which is a neighbour of", three clues about a thing within a clause:
  such a sentence has to be read twice. Three clues deep a sentence is long.
- "Has post office as one of its services", "whose team is night watch": a value of a column has no article.
- "The town of a station", "the painting of L-020": what leads back from a thing is the name of the column.
- "Between 0 and 2 platforms": the range about 1.
- "A person that studied at": right, and counted as natural, but few say it; "who" and "that" take turns so that
  questions differ.
- A joining year asked of one whose joining date is in the 2010s: right, unique and counted as natural, but dull.
"""


def levels(bases_: Sequence[Path] = ()) -> Iterator[str]:
    """Rows of a table: of 60 questions of depth 2 with one level how many there are, their mean fuzz, and the CPU
    seconds of all four levels; of the knowledge bases in some folders, or else of the sources of this page."""
    if bases_:
        yield from (f"| {base.name} | {' | '.join(_levels(base))} |" for base in bases_)
        return
    for kind, (_, write) in KINDS.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "source").mkdir()
            bases.build_base(sources_at(write(folder / "source")), folder / "kb")
            yield f"| {kind} | {' | '.join(_levels(folder / 'kb'))} |"


def _levels(base: Path) -> Iterator[str]:
    begin = time.process_time()
    for level in (1, 2, 3, 4):
        knobs = {"tries": 4, "seed": 0, "closed_world": True, "levels": (level,)}
        grown, _ = grow.grow(base, grow.cells({"train": 60}, (2,)), **knobs)
        fuzz = sum(p.difficulty["fuzz"] for p in grown) / len(grown) if grown else 0
        yield f"{len(grown)}, {fuzz:.2f}" if grown else "0"
    yield f"{time.process_time() - begin:.1f}"


def main() -> None:
    """The page; with the argument `levels` (and folders of knowledge bases) the table of levels instead, printed."""
    if sys.argv[1:2] == ["levels"]:
        for row in levels([Path(name) for name in sys.argv[2:]]):
            print(row, flush=True)
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
