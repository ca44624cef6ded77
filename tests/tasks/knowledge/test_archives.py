"""A .zip is read as the folder in it: the same facts, every member accounted for, and nothing written beside it."""

import csv
import stat
import zipfile
from pathlib import Path

import pytest
import yaml

from flows.cli import main
from tasks.core.errors import UserError
from tasks.knowledge import archives, bases
from tasks.knowledge.archives import parted, skipped, unpacked
from tests.support import museum


def pack(folder: Path, out: Path, *, below: str = "") -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.write(path, below + path.relative_to(folder).as_posix())


def facts(base: Path) -> set[tuple[str, str, str]]:
    return {(f.subject, f.relation, f.value) for f in bases.load(base).facts.values()}


@pytest.mark.parametrize("below", ["", "museum/"], ids=["files", "one folder of all"])
def test_a_zip_gives_what_its_folder_gives(below, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    museum.write(Path("museum"))
    pack(Path("museum"), Path("packed.zip"), below=below)
    assert main(["kb", "build", "museum", "--out", "kb"]) == 0
    assert main(["kb", "build", "packed.zip", "--out", "packed"]) == 0
    assert facts(Path("packed")) == facts(Path("kb")) and bases.card(Path("packed"))["agreed"] == 1
    assert f"packed.zip/{below}rooms.xlsx: 18 facts about 6 things" in capsys.readouterr().out
    sources = yaml.safe_load(Path("packed/schema.yaml").read_text())["sources"]
    assert [s["path"] for s in sources] == [
        "packed.zip",
        *(f"packed.zip/{below}{name}" for name in ("paintings.csv", "loans.json", "rooms.xlsx")),
    ]
    gave = list(csv.DictReader(Path("packed/files.csv").read_text().splitlines()))
    there = {f"packed.zip/{below}{p.relative_to('museum')}" for p in Path("museum").rglob("*") if p.is_file()}
    assert {row["file"] for row in gave} == there
    assert sum(int(row["facts"]) for row in gave) == bases.card(Path("packed"))["facts"]
    assert main(["kb", "build", "--schema", "packed/schema.yaml", "--out", "again"]) == 0
    Path("packed.zip").rename("other.zip")
    assert main(["kb", "build", "other.zip", "--schema", "packed/schema.yaml", "--out", "other"]) == 0
    assert facts(Path("again")) == facts(Path("other")) == facts(Path("kb"))


def test_every_member_that_is_not_read_is_reported_with_its_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("club.zip", "w") as archive:
        archive.writestr("towns.csv", "name;size\nAa;3\nBb;4\n")
        archive.writestr("aa.md", "# Aa\n\nRiver: Selk\n")
        link = zipfile.ZipInfo("here")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("__MACOSX/._aa.md", "?")
        archive.writestr("plan.png", b"\x89PNG")
        archive.writestr("broken.xlsx", b"PK")
        archive.writestr("old.md", "# Old\n\nRiver: Um\n")
        archive.writestr("secret.md", "# Secret\n\nRiver: Ox\n")
        archive.writestr("aa.md/deep.md", "# Deep\n\nRiver: Ox\n")
    data = Path("club.zip").read_bytes()
    at = data.rindex(b"secret.md") - 46  # its entry in the table at the end, and in front of its bytes
    first = data.index(b"secret.md") - 30
    data = data[:at] + data[at : at + 8] + b"\x01\x00" + data[at + 10 :]
    data = data[:first] + data[first : first + 6] + b"\x01\x00" + data[first + 8 :]
    Path("club.zip").write_bytes(data.replace(b"# Old\n", b"# OLD\n"))  # its check sum is wrong now
    assert main(["kb", "build", "club.zip", "--out", "kb"]) == 0
    assert {("town:Aa", "size", "3"), ("town:Aa", "river", "river:Selk")} <= facts(Path("kb"))
    notes = {r["file"]: r["note"] for r in csv.DictReader(Path("kb/files.csv").read_text().splitlines())}
    assert len(notes) == 9 and not notes["club.zip/towns.csv"] and not notes["club.zip/aa.md"]
    for file, why in {
        "here": "a link",
        "__MACOSX/._aa.md": "macOS",
        "plan.png": "no reader of documents knows .png",
        "broken.xlsx": "damaged",
        "old.md": "cannot be unpacked",
        "secret.md": "locked by a password",
        "aa.md/deep.md": "cannot be unpacked",
    }.items():
        assert why in notes[f"club.zip/{file}"], file
    assert len(bases.card(Path("kb"))["skipped"]) == 6 and bases.card(Path("kb"))["quarantined"] == {"unreadable": 1}
    assert "files not read" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["../out.md", "/tmp/out.md", "a/../../out.md", "..\\out.md", "C:\\out.md"])
def test_a_member_outside_its_folder_refuses_the_archive(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("x.zip", "w") as archive:
        archive.writestr("a.md", "# Aa\n\nRiver: Selk\n")
        archive.writestr(name, "# Out\n\nRiver: Selk\n")
    assert main(["kb", "build", "x.zip", "--out", "kb"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "lies outside its folder" in error
    assert {p.name for p in tmp_path.iterdir()} <= {"x.zip", "kb.schema.yaml"}


def test_an_archive_that_swells_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "SURE", 1 << 16)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for i in range(20):
            archive.writestr(f"{i}.md", bytes(1 << 20))
    with pytest.raises(UserError, match="bomb.zip holds more than"):
        unpacked(tmp_path / "bomb.zip")
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for i in range(20):
            archive.writestr(f"{i}.md", b"# A")
    monkeypatch.setattr(archives, "MOST", 19)
    with pytest.raises(UserError, match="holds 20 files, at most 19"):
        unpacked(tmp_path / "many.zip")
    (tmp_path / "no.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(UserError, match="damaged, or no .zip"):
        unpacked(tmp_path / "no.zip")


def test_a_zip_of_one_file_is_read_as_that_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("x.zip", "w") as archive:
        archive.writestr("towns.csv", "name;size\nAa;3\nBb;4\n")
        archive.writestr("__MACOSX/._towns.csv", "?")
        archive.writestr(".DS_Store", "?")
    assert unpacked(Path("x.zip")).name == "towns.csv" and set(skipped(Path("x.zip"))) == {
        "__MACOSX/._towns.csv",
        ".DS_Store",
    }
    assert main(["kb", "build", "x.zip", "--out", "kb"]) == 0
    assert facts(Path("kb")) == {("town:Aa", "size", "3"), ("town:Bb", "size", "4")}
    assert set(bases.card(Path("kb"))["skipped"]) == {"x.zip/__MACOSX/._towns.csv", "x.zip/.DS_Store"}
    assert parted(Path("kb")) == (Path("kb"), None)


def test_the_stage_reads_a_zip_too(tmp_path):
    museum.write(tmp_path / "museum")
    (tmp_path / "data").mkdir()
    pack(tmp_path / "museum", tmp_path / "data" / "museum.zip")
    card = museum.staged(tmp_path, "data/museum.zip")
    gave = {f["file"]: f["facts"] for f in card["files"]}
    assert gave["data/museum.zip/paintings.csv"] == 200 and sum(gave.values()) == card["accepted"]


def test_a_folder_of_one_table_and_a_readme_is_found_again_by_the_schema(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        museum.write(tmp_path / folder)
        Path(folder, "README.md").write_text("# Rooms\n\nA table.\n")
        for path in [p for p in Path(folder).rglob("*") if p.is_file() and p.name not in ("rooms.xlsx", "README.md")]:
            path.unlink()
    assert main(["kb", "build", "a", "--out", "kb"]) == 0
    assert main(["kb", "build", "b", "--schema", "kb/schema.yaml", "--out", "kb2"]) == 0
    assert facts(Path("kb2")) == facts(Path("kb"))
    (source,) = yaml.safe_load(Path("kb2/schema.yaml").read_text())["sources"]
    assert source["path"] == "b/rooms.xlsx"
