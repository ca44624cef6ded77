"""Write a SQL query over three tables that refer to each other: artists, their albums, the albums' tracks.

`database` is a script of the Chinook database (Chinook_Sqlite.sql, github.com/lerocha/chinook-database), of which each
problem gets a part; without one, tables of the same form are invented. Certificate: sqlite runs the query on the
problem's database and five mutations of it,
and loops over a plan that is read from the text give the same rows. The verifier compares results on the same twelve and on others.
Difficulty axes: artists, joins.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.families._tables import SYLLABLES
from synth.types import Problem, Quarantined, Split, seed_for
from synth.verify._database import Tables, agreed

LADDER = (
    {"artists": 3, "joins": 0, "kinds": ("genre", "longer")},
    {"artists": 4, "joins": 1, "kinds": ("albums", "sizes")},
    {"artists": 4, "joins": 2, "kinds": ("tracks", "catalogue", "longest")},
    {"artists": 5, "joins": 2, "kinds": ("without", "above")},
)
CERTIFICATE = ("sqlite runs the query on twelve databases", "loops over a plan read from the text, on the same twelve")
GENRES = ("Rock", "Jazz", "Metal", "Latin", "Blues")
ASKS = {
    "genre": "the number of tracks of the genre {0}",
    "longer": "the names of all tracks longer than {0} seconds",
    "albums": "the titles of all albums by {0}",
    "sizes": "each album title with its number of tracks",
    "tracks": "the names of all tracks by {0}",
    "catalogue": "each artist name with the number of tracks of the genre {0}, where there are any",
    "longest": "each artist name with the seconds of the longest track",
    "without": "the names of all artists without a track of the genre {0}",
    "above": "the names of all tracks longer than the average track of their album",
}
_JOIN = "artist JOIN album ON album.artist = artist.id JOIN track ON track.album = album.id"
QUERIES = {
    "genre": "SELECT COUNT(*) FROM track WHERE genre = '{0}'",
    "longer": "SELECT name FROM track WHERE seconds > {0}",
    "albums": "SELECT title FROM album JOIN artist ON album.artist = artist.id WHERE artist.name = '{0}'",
    "sizes": "SELECT title, COUNT(*) FROM album JOIN track ON track.album = album.id GROUP BY title",
    "tracks": f"SELECT track.name FROM {_JOIN} WHERE artist.name = '{{0}}'",
    "catalogue": f"SELECT artist.name, COUNT(*) FROM {_JOIN} WHERE genre = '{{0}}' GROUP BY artist.name",
    "longest": f"SELECT artist.name, MAX(seconds) FROM {_JOIN} GROUP BY artist.name",
    "without": f"SELECT name FROM artist WHERE id NOT IN (SELECT artist.id FROM {_JOIN} WHERE genre = '{{0}}')",
    "above": "SELECT name FROM track WHERE seconds > (SELECT AVG(other.seconds) FROM track AS other WHERE other.album = track.album)",
}
_SCHEMA = "Tables artist(id, name), album(id, title, artist), track(id, name, album, genre, seconds)."
_TEXT = re.compile(re.escape(_SCHEMA) + r" Write SQL for (.+)\.")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z ]{1,24}")


def music_shop_sql(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), database: str = "", graded: bool = False
) -> Problem | Quarantined:
    """Problem `index` of a split: a query. `levels` are the rungs of the ladder to draw from, `database` the path of a
    Chinook script, `graded` as in text_to_sql.

    Raises ValueError where there is no such file, or it holds no such tables.
    """
    problem = item(
        *(seed, split, index, levels),
        family="music_shop_sql",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=partial(draw, database=database),
        pose=pose,
        solve=solve,
        agree=agree,
    )
    return replace(problem, verifier="sql_graded") if graded and isinstance(problem, Problem) else problem


def draw(rng: Random, *, artists: int, joins: int, kinds: Sequence[str], database: str = "") -> tuple[str, tuple]:
    part = rng.randrange(10**6)
    tables = _part(Random(seed_for("music_shop_sql", bool(database), artists, part)), artists, database)
    kind = rng.choice(kinds)
    given = {
        "genre": lambda: rng.choice([r[3] for r in tables["track"]["rows"]]),
        "longer": lambda: str(rng.choice([r[4] for r in tables["track"]["rows"]]) - rng.randint(0, 9)),
        "albums": lambda: rng.choice([r[1] for r in tables["artist"]["rows"]]),
    }
    argument = given[{"albums": "albums", "tracks": "albums", "longer": "longer"}.get(kind, "genre")]()
    argument = argument if "{0}" in ASKS[kind] else ""
    return f"{'chinook' if database else 'invented'} {artists} {part} {kind} {argument}", (tables, kind, argument)


def _part(rng: Random, artists: int, database: str) -> Tables:
    """Some artists with up to three albums each and up to three tracks of each: at most 45 tracks."""
    shop = _chinook(database) if database else _invented(rng)
    rows: dict[str, list] = {"artist": [], "album": [], "track": []}
    for artist in rng.sample(shop, artists):
        rows["artist"].append([len(rows["artist"]) + 1, artist[0]])
        for title, tracks in rng.sample(artist[1], min(len(artist[1]), rng.randint(1, 3))):
            rows["album"].append([len(rows["album"]) + 1, title, len(rows["artist"])])
            for name, genre, seconds in rng.sample(tracks, min(len(tracks), rng.randint(1, 3))):
                rows["track"].append([len(rows["track"]) + 1, name, len(rows["album"]), genre, seconds])
    columns = {
        "artist": [["id", "INTEGER"], ["name", "TEXT"]],
        "album": [["id", "INTEGER"], ["title", "TEXT"], ["artist", "INTEGER"]],
        "track": [["id", "INTEGER"], ["name", "TEXT"], ["album", "INTEGER"], ["genre", "TEXT"], ["seconds", "INTEGER"]],
    }
    return {name: {"columns": columns[name], "rows": rows[name]} for name in rows}


def _invented(rng: Random) -> list[tuple[str, list]]:
    name = lambda: "".join(rng.choice(SYLLABLES) for _ in range(3)).capitalize()  # noqa: E731
    track = lambda: (f"{name()} {name()}", rng.choice(GENRES), rng.randint(100, 400))  # noqa: E731
    return [(a, [(name(), [track() for _ in range(3)]) for _ in range(3)]) for a in {name(): None for _ in range(12)}]


@cache
def _chinook(path: str) -> list[tuple[str, list]]:
    """Every artist of a Chinook script with its albums and their tracks; names with other signs than letters and spaces
    are left out."""
    if not Path(path).is_file():
        raise ValueError(
            f"music_shop_sql: there is no file {path}: name Chinook_Sqlite.sql, or leave `database` out for invented tables"
        )
    with sqlite3.connect(":memory:") as connection:
        try:
            connection.executescript(Path(path).read_text(encoding="utf-8-sig"))
            rows = connection.execute(
                "SELECT Artist.Name, Album.Title, Track.Name, Genre.Name, Track.Milliseconds / 1000 FROM Track JOIN Album USING (AlbumId) "
                "JOIN Artist USING (ArtistId) JOIN Genre USING (GenreId) ORDER BY Artist.Name, Album.Title, TrackId"
            ).fetchall()
        except sqlite3.Error as e:
            raise ValueError(f"music_shop_sql: {path} is no script of the Chinook database ({e})") from e
    shop: dict[str, dict[str, list]] = {}
    for artist, title, *track in rows:
        if all(_PLAIN.fullmatch(x) for x in (artist, title, *track[:2])):
            shop.setdefault(artist, {}).setdefault(title, []).append(tuple(track))
    return [(artist, list(albums.items())) for artist, albums in sorted(shop.items())]


def pose(spec: tuple) -> dict[str, Any]:
    tables, kind, argument = spec
    return {
        "prompt": f"{_SCHEMA} Write SQL for {ASKS[kind].format(argument)}.",
        "answer": QUERIES[kind].format(argument),
        "verifier": "sql",
        "args": {"tables": tables},
    }


_ASKS = [(kind, re.compile(text.replace("{0}", r"([\w ]+)"))) for kind, text in ASKS.items()]


def read(question: str) -> tuple[str, str]:
    """(kind, argument) of the text."""
    ask = parsed(_TEXT, question)[1]
    matches = [(kind, "".join(m.groups())) for kind, p in _ASKS if (m := p.fullmatch(ask))]
    if len(matches) != 1:
        raise Refused(
            f"{'not_unique' if matches else 'roundtrip'}: {ask!r} is asked by {len(matches)} kinds of questions"
        )
    return matches[0]


def solve(question: str) -> str:
    kind, argument = read(question)
    return QUERIES[kind].format(argument)


def evaluate(kind: str, argument: str, tables: Tables) -> list[tuple]:
    """The rows of a plan, by loops."""
    artists, albums, tracks = (tables[n]["rows"] for n in ("artist", "album", "track"))
    joined = [(a, b, t) for a in artists for b in albums if b[2] == a[0] for t in tracks if t[2] == b[0]]
    if kind == "genre":
        return [(sum(t[3] == argument for t in tracks),)]
    if kind == "longer":
        return [(t[1],) for t in tracks if t[4] > int(argument)]
    if kind == "albums":
        return [(b[1],) for b in albums for a in artists if b[2] == a[0] and a[1] == argument]
    if kind == "tracks":
        return [(t[1],) for a, _, t in joined if a[1] == argument]
    if kind == "sizes":
        owned = [b[1] for b in albums for t in tracks if t[2] == b[0]]
        return [(title, owned.count(title)) for title in dict.fromkeys(owned)]
    if kind == "without":
        having = {a[0] for a, _, t in joined if t[3] == argument}
        return [(a[1],) for a in artists if a[0] not in having]
    if kind == "above":
        of = lambda album: [t[4] for t in tracks if t[2] == album]  # noqa: E731
        return [(t[1],) for t in tracks if t[4] * len(of(t[2])) > sum(of(t[2]))]
    held: dict[str, list[int]] = {}
    for a, _, t in joined:
        if kind == "longest" or t[3] == argument:
            held.setdefault(a[1], []).append(t[4])
    return [(name, max(seconds) if kind == "longest" else len(seconds)) for name, seconds in held.items()]


def agree(problem: Problem, other: str) -> bool:
    """Whether the stored query, the one written from the text, and the plan of the text give one result on all
    twelve databases."""
    kind, argument = read(problem.question)
    return agreed(problem.args["tables"], [problem.answer, other], lambda database: evaluate(kind, argument, database))
