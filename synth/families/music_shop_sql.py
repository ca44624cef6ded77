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

from synth.families._sample import Refused, item
from synth.families._tables import SYLLABLES
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split, seed_for
from synth.verify._database import Tables, agreed

LADDER = (
    {"artists": 3, "joins": 0, "kinds": ("genre", "longer")},
    {"artists": 3, "joins": 1, "kinds": ("albums", "sizes")},
    {"artists": 5, "joins": 2, "kinds": ("tracks", "catalogue", "longest")},
    {"artists": 5, "joins": 2, "kinds": ("without", "above")},
)
CERTIFICATE = ("sqlite runs the query on twelve databases", "loops over a plan read from the text, on the same twelve")
GENRES = ("Rock", "Jazz", "Metal", "Latin", "Blues")
ASKS = {  # {0} is a name, {1} a number of seconds: what the database holds is not in the text, so they tell items apart
    "genre": "the number of tracks of the genre {0} longer than {1} seconds",
    "longer": "the names of all tracks longer than {1} seconds",
    "albums": "the titles of all albums by {0}",
    "sizes": "each album title with its number of tracks longer than {1} seconds, where there are any",
    "tracks": "the names of all tracks by {0}",
    "catalogue": "each artist name with the number of tracks of the genre {0} longer than {1} seconds, where there are any",
    "longest": "each artist name with the seconds of the longest track shorter than {1} seconds, where there are any",
    "without": "the names of all artists without a track of the genre {0} longer than {1} seconds",
    "above": "the names of all tracks longer than {1} seconds that are longer than the average track of their album",
}
_JOIN = "artist JOIN album ON album.artist = artist.id JOIN track ON track.album = album.id"
_OWN = "SELECT AVG(other.seconds) FROM track AS other WHERE other.album = track.album"
QUERIES = {
    "genre": "SELECT COUNT(*) FROM track WHERE genre = '{0}' AND seconds > {1}",
    "longer": "SELECT name FROM track WHERE seconds > {1}",
    "albums": "SELECT title FROM album JOIN artist ON album.artist = artist.id WHERE artist.name = '{0}'",
    "sizes": "SELECT title, COUNT(*) FROM album JOIN track ON track.album = album.id WHERE seconds > {1} GROUP BY title",
    "tracks": f"SELECT track.name FROM {_JOIN} WHERE artist.name = '{{0}}'",
    "catalogue": f"SELECT artist.name, COUNT(*) FROM {_JOIN} WHERE genre = '{{0}}' AND seconds > {{1}} GROUP BY artist.name",
    "longest": f"SELECT artist.name, MAX(seconds) FROM {_JOIN} WHERE seconds < {{1}} GROUP BY artist.name",
    "without": "SELECT name FROM artist WHERE id NOT IN "
    f"(SELECT artist.id FROM {_JOIN} WHERE genre = '{{0}}' AND seconds > {{1}})",
    "above": f"SELECT name FROM track WHERE seconds > {{1}} AND seconds > ({_OWN})",
}
_SCHEMA = "artist(id, name), album(id, title, artist), track(id, name, album, genre, seconds)"
WORDINGS = Wordings(
    f"Tables {_SCHEMA}. Write SQL for {{ask}}.",
    f"A music shop has the tables {_SCHEMA}. Find {{ask}}.",
    f"Which query of {_SCHEMA} gives {{ask}}?",
    f"The owner of a music shop wants to know {{ask}}. The tables are {_SCHEMA}.",
    f"In SQLite there are {_SCHEMA}. Fetch {{ask}}.",
    answer="An album names the id of its artist, a track that of its album. Answer with one SQL query.",
    ask=r"[\w ,]+",
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z ]{1,24}")


def music_shop_sql(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), database: str = "", graded: bool = False
) -> Problem | Quarantined:
    """Problem `index` of a split: a query. `levels` are the levels to draw from, `database` the path of a
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
    name, seconds = "", ""
    if "{0}" in ASKS[kind]:
        by_artist = kind in ("albums", "tracks")
        name = rng.choice(
            [r[1] for r in tables["artist"]["rows"]] if by_artist else [r[3] for r in tables["track"]["rows"]]
        )
    if "{1}" in ASKS[kind]:
        near = rng.choice([r[4] for r in tables["track"]["rows"]])
        seconds = str(near + rng.randint(1, 10) if kind == "longest" else near - rng.randint(0, 9))
    return f"{kind} {name} {seconds}", (tables, kind, name, seconds)


def _part(rng: Random, artists: int, database: str) -> Tables:
    """Some artists with up to three albums each and up to three tracks of each: at most nine tracks for each."""
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
    tables, kind, name, seconds = spec
    return {
        "prompt": WORDINGS.write(ask=ASKS[kind].format(name, seconds)),
        "answer": QUERIES[kind].format(name, seconds),
        "verifier": "sql",
        "args": {"tables": tables},
    }


_ASKS = [
    (kind, re.compile(text.replace("{0}", r"(?P<name>[\w ]+)").replace("{1}", r"(?P<seconds>\d+)")))
    for kind, text in ASKS.items()
]


def read(question: str) -> tuple[str, str, str]:
    """(kind, name, seconds) of the text, "" for what it does not say."""
    ask = WORDINGS.read(question)["ask"]
    matches = [(kind, m.groupdict()) for kind, p in _ASKS if (m := p.fullmatch(ask))]
    if len(matches) != 1:
        raise Refused(
            f"{'not_unique' if matches else 'roundtrip'}: {ask!r} is asked by {len(matches)} kinds of questions"
        )
    return matches[0][0], matches[0][1].get("name", ""), matches[0][1].get("seconds", "")


def solve(question: str) -> str:
    kind, name, seconds = read(question)
    return QUERIES[kind].format(name, seconds)


def evaluate(kind: str, name: str, seconds: str, tables: Tables) -> list[tuple]:
    """The rows of a plan, by loops."""
    artists, albums, tracks = (tables[n]["rows"] for n in ("artist", "album", "track"))
    joined = [(a, b, t) for a in artists for b in albums if b[2] == a[0] for t in tracks if t[2] == b[0]]
    limit = int(seconds or 0)
    if kind == "genre":
        return [(sum(t[3] == name and t[4] > limit for t in tracks),)]
    if kind == "longer":
        return [(t[1],) for t in tracks if t[4] > limit]
    if kind == "albums":
        return [(b[1],) for b in albums for a in artists if b[2] == a[0] and a[1] == name]
    if kind == "tracks":
        return [(t[1],) for a, _, t in joined if a[1] == name]
    if kind == "sizes":
        owned = [b[1] for b in albums for t in tracks if t[2] == b[0] and t[4] > limit]
        return [(title, owned.count(title)) for title in dict.fromkeys(owned)]
    if kind == "without":
        having = {a[0] for a, _, t in joined if t[3] == name and t[4] > limit}
        return [(a[1],) for a in artists if a[0] not in having]
    if kind == "above":
        of = lambda album: [t[4] for t in tracks if t[2] == album]  # noqa: E731
        return [(t[1],) for t in tracks if t[4] > limit and t[4] * len(of(t[2])) > sum(of(t[2]))]
    held: dict[str, list[int]] = {}
    for a, _, t in joined:
        if t[4] < limit if kind == "longest" else t[3] == name and t[4] > limit:
            held.setdefault(a[1], []).append(t[4])
    return [(artist, max(times) if kind == "longest" else len(times)) for artist, times in held.items()]


def agree(problem: Problem, other: str) -> bool:
    """Whether the stored query, the one written from the text, and the plan of the text give one result on all
    twelve databases."""
    plan = read(problem.question)
    return agreed(problem.args["tables"], [problem.answer, other], lambda database: evaluate(*plan, database))
