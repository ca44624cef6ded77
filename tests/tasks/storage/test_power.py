"""A sample of `make drill-power`: whatever a power cut leaves of what was not flushed, nothing is lost that was said to
be done. And the disk that the drill assumes is as bad as it says."""

import drill_power
import pytest
from power import Disk, Scenario, build, drilled, recorded

HERE = "import os\nfrom pathlib import Path\n"


def there(root, lines):
    assert not lines or (root / "a").read_text() == "new"


def old(root):
    (root / "a").write_text("old")


@pytest.mark.parametrize(
    ("program", "kept"),
    [
        ("Path('a').write_text('new')\nsaid('done')", False),
        ("Path('b').write_text('new'); os.replace('b', 'a'); os.sync()\nsaid('done')", True),
        ("Path('b').write_text('new'); os.replace('b', 'a')\nsaid('done')", False),
        (
            "f = open('b', 'w'); f.write('new'); f.flush(); os.fsync(f.fileno()); os.replace('b', 'a')\nsaid('done')",
            False,
        ),
        (
            "f = open('b', 'w'); f.write('new'); f.flush(); os.fsync(f.fileno()); os.replace('b', 'a')\n"
            "os.fsync(os.open('.', os.O_RDONLY))\nsaid('done')",
            True,
        ),
    ],
)
def test_the_disk_loses_what_was_not_flushed_and_nothing_else(program, kept):
    outcome = drilled(Scenario(HERE + program, there, old), 200)
    assert outcome.states and bool(outcome.wrong) != kept, outcome


def test_a_new_folder_is_lost_with_all_in_it_until_the_one_above_is_flushed():
    program = "os.mkdir('d')\nf = open('d/x', 'w'); f.write('new'); f.flush(); os.fsync(f.fileno())\nos.fsync(os.open('d', os.O_RDONLY))\n"

    def check(root, lines):
        assert not lines or (root / "d/x").read_text() == "new"

    assert drilled(Scenario(HERE + program + "said('x')", check), 50).wrong
    assert not drilled(Scenario(HERE + program + "os.fsync(os.open('.', os.O_RDONLY))\nsaid('x')", check), 50).wrong


def test_what_is_followed_is_what_happens(tmp_path):
    """After every record the state with nothing lost is the folder itself."""
    import random

    root = tmp_path / "p"
    root.mkdir()
    old(root)
    program = """
import shutil
os.makedirs("d/e"); Path("d/e/x").write_bytes(b"12345"); os.truncate("d/e/x", 3); shutil.copy("d/e/x", "d/y")
with open("d/y", "ab") as f: f.write(b"more")
with open("d/y", "r+b") as f: f.seek(1); f.write(b"_"); f.truncate(5)
os.rename("d/e", "f"); os.symlink("y", "d/z"); os.link("d/y", "d/w"); os.remove("a"); shutil.copytree("f", "g"); shutil.rmtree("f")
"""
    disk = Disk(root)
    for op in recorded(root, HERE + program):
        if op.what != "!":
            disk.take(op)
    shown = lambda r: {p.relative_to(r).as_posix(): p.is_dir() or p.read_bytes() for p in sorted(r.rglob("*"))}  # noqa: E731
    build(tmp_path / "again", disk.after(random.Random(0), "all", "all"))
    assert shown(tmp_path / "again") == shown(root) and (tmp_path / "again/d/y").read_bytes() == b"1_3mo"


QUICK = [n for n in drill_power.SCENARIOS if n not in ("checkpoints", "the registry of models")]


@pytest.mark.parametrize("name", [*QUICK, pytest.param("checkpoints", marks=pytest.mark.slow)])
def test_nothing_is_lost_that_was_said_to_be_done(name):
    outcome = drilled(drill_power.SCENARIOS[name], 60)
    assert outcome.states > 5 and not outcome.wrong, outcome.wrong[:3]
