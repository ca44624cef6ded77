"""A made-up museum as a person has it: a folder of pages, a CSV file, a JSON list, a spreadsheet, a Word file and a page
of PDF."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

from tasks.runtime.stage import Stage
from tasks.stages.kb import kb

ARTISTS = {  # name -> (birthplace, born, teacher)
    "Ilse Marten": ("Olmhaven", "4 May 1851", ""),
    "Jonas Veld": ("Karsund", "11 June 1862", "Ilse Marten"),
    "Renée Calder": ("Olmhaven", "2 March 1870", "Jonas Veld"),
    "Tomas Ryle": ("Brakne", "30 August 1848", ""),
    "Nadia Foss": ("Karsund", "17 January 1881", "Tomas Ryle"),
    "Emil Sandor": ("Verlo", "23 July 1859", "Tomas Ryle"),
    "Greta Lindqvist": ("Brakne", "9 October 1866", "Ilse Marten"),
    "Pavel Orlik": ("Verlo", "1 December 1875", "Emil Sandor"),
}
ROOMS = {  # name -> (floor, capacity, guard)
    "North Gallery": (1, 60, "Anna Berg"),
    "South Gallery": (1, 45, "Otto Klein"),
    "Lantern Room": (2, 25, "Mira Solis"),
    "Harbour Room": (2, 30, "Anna Berg"),
    "Attic Cabinet": (3, 12, "Piet Dekker"),
    "Blue Cabinet": (3, 15, "Mira Solis"),
}
STAFF = {  # name -> (home town, started, team)
    "Anna Berg": ("Olmhaven", "2011", "day watch"),
    "Otto Klein": ("Karsund", "2004", "day watch"),
    "Mira Solis": ("Brakne", "2016", "night watch"),
    "Piet Dekker": ("Verlo", "1998", "night watch"),
}
THINGS = ("Harbour", "Orchard", "Ferry", "Mill", "Winter Road", "Lighthouse", "Market", "Quarry", "Fog", "Bell Tower")
WHEN = ("at Dawn", "in Rain", "by Night", "in Spring")
TECHNIQUES = ("oil", "watercolour", "tempera", "gouache")
HOSTS = ("Rosen Museum", "City Hall Brakne", "Karsund House", "Verlo Collection")


def write(folder: Path) -> None:
    """Write the files below `folder`."""
    rng = random.Random(5)
    titles = [f"{thing} {when}" for thing in THINGS for when in WHEN]
    (folder / "artists").mkdir(parents=True)
    for name, (place, born, teacher) in ARTISTS.items():
        lines = [f"# {name}", "", f"Birthplace: {place}", f"Date of birth: {born}"]
        lines += [f"Teacher: [{teacher}]({teacher.replace(' ', '%20')}.md)"] if teacher else []
        (folder / "artists" / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (folder / "paintings.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["Title", "Artist", "Room", "Year", "Height (cm)", "Technique"])
        artists = [*ARTISTS, "Renee Calder"]  # one of them without her accent
        for title in titles:
            artist, room = rng.choice(artists), rng.choice([*ROOMS])
            row = [title, artist, room, rng.randrange(1875, 1930), rng.randrange(20, 220), rng.choice(TECHNIQUES)]
            out.writerow(row)
    loans = [
        {"loan": f"L-{i:03}", "painting": title, "host": HOSTS[i % 4], "insurance": rng.randrange(10, 90) * 1000}
        for i, title in enumerate(rng.sample(titles, 24))
    ]
    (folder / "loans.json").write_text(json.dumps({"updated": "2026-03-01", "loans": loans}), encoding="utf-8")
    sheet(folder / "rooms.xlsx", "rooms", ["Room", "Floor", "Capacity", "Guard"], [[n, *r] for n, r in ROOMS.items()])
    for name, (town, started, team) in STAFF.items():
        text = f"# {name}\n\nHome town: {town}\nStarted: {started}\nTeam: {team}\n"
        if name == "Piet Dekker":
            word(folder / "staff" / f"{name}.docx", name, text.split("\n")[2:])
        else:
            (folder / "staff").mkdir(exist_ok=True)
            (folder / "staff" / f"{name}.md").write_text(text, encoding="utf-8")
    page = "# North Gallery\n\nCapacity: 60\nWindows: 12\nOpened: 1903\n"
    (folder / "North Gallery.md").write_text(page, encoding="utf-8")
    (folder / "Attic Cabinet.md").write_text("# Attic Cabinet\n\nCapacity: 14\nWindows: 2\nOpened: 1911\n")
    (folder / "M. Solis.md").write_text("# M. Solis\n\nLanguages: Danish\n", encoding="utf-8")
    (folder / "plan.png").write_bytes(b"\x89PNG")


def sheet(path: Path, title: str, head: list[str], rows: list[list]) -> None:
    """A spreadsheet of one sheet."""
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = title
    for row in [head, *rows]:
        book.active.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    book.save(path)


def word(path: Path, title: str, lines: list[str]) -> None:
    """A Word file of a title and lines."""
    import docx

    document = docx.Document()
    document.add_heading(title, 0)
    for line in lines:
        if line:
            document.add_paragraph(line)
    path.parent.mkdir(parents=True, exist_ok=True)
    document.save(path)


def staged(root: Path, source: str) -> dict[str, Any]:
    """The card of the stage `kb` over one source in `root`, whose documents and tables it must have told apart."""
    params = {"sources": [source], "world_countries": 0, "bad_rows": 1}
    stage = Stage("kb", plan={"params": params, "seed": 7}, root=root, deps=["data"])
    with stage.running():
        kb(stage, **params)
    card = json.loads((stage.target / "card.json").read_text())
    assert [s["kind"] for s in card["sources"]] == ["documents", "csv_records", "json_records", "sheet_records"]
    return card
