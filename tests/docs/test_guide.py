"""The guide's code blocks run: those marked `run` after their language, page by page, each page in a folder of its
own."""

import os
import re
import subprocess
import sys

import pytest

from docs.generators.manual import pages
from tasks.core.paths import CODE as ROOT

GUIDE = [
    p
    for p in sorted((ROOT / "docs").glob("*.md"))
    if re.search(r"^```(sh|python) run$", p.read_text(encoding="utf-8"), re.M)
]
REFUSED = {'espalier why "Solve"': "rows match 'Solve': name one of"}  # shown because it is refused, with these words


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDE, ids=lambda p: p.stem)
def test_blocks_run(page, tmp_path, tmp_path_factory):
    blocks = re.findall(r"^```(sh|python) run\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    folder = os.path.dirname(sys.executable)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/espalier"
    command.write_text(
        f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c 'import sys; from flows.cli import main; sys.exit(main())' \"$@\"\n"
    )
    command.chmod(0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ESPALIER_", "DVC_", "MLFLOW_", "PREFECT_"))}
    env |= {
        "PATH": f"{tmp_path}/bin:{folder}:{env['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path_factory.getbasetemp() / "cache"),  # what one page compiled the next one needs
    }
    env |= {f"GIT_{who}_{what}": "guide@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for kind, text in blocks:
        if kind == "python":
            done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True)
            assert done.returncode == 0 and done.stdout.strip(), f"{page.name}:\n{text}\n{done.stderr[-1500:]}"
    script = "\n".join(text for kind, text in blocks if kind == "sh")
    for line, words in REFUSED.items():
        script = script.replace(line, f'said=$({line} 2>&1) && exit 1 || test $? = 2; grep -qF "{words}" <<< "$said"')
    if script:
        done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{page.name}:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"


def test_there_is_something_to_run():
    assert {p.stem for p in GUIDE} >= {
        "tutorial",
        "tutorial-documents",
        "tutorial-preferences",
        "evaluation",
        "operations",
    }


def test_the_pages_of_stages_are_what_the_code_says():
    stale = [
        f.relative_to(ROOT) for f, text in pages().items() if not f.exists() or f.read_text(encoding="utf-8") != text
    ]
    assert not stale, f"run `make manual`: {stale} differ from the code"


def test_tests_that_the_pains_name_exist():
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs/pains.md").read_text(encoding="utf-8")))
    assert len(named) > 10 and not [n for n in named if not (ROOT / n).exists()]
