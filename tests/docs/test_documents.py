"""What the documents say exists: links lead somewhere, commands are commands, and every command is listed."""

import re

import pytest

from docs.generators.site import pages
from tasks.core.paths import CODE as ROOT
from flows import cli

PAGES = pages()
COMMANDS = cli.parser()[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = [
        link
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in link and not link.startswith("#")
    ]
    missing = [link for link in links if not (page.parent / link.partition("#")[0]).exists()]
    assert not missing, f"{page.name} links to what is not there: {missing}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_begins_with_the_question_that_it_answers(page):
    title, first = page.read_text(encoding="utf-8").split("\n\n")[:2]
    assert title.startswith("# ") and re.match(r"Which question this page answers: [^\n]+\?(\n|$)", first), page.name


def code(text):
    """What stands in fenced blocks, a line each, and in inline code."""
    fenced = [line for block in re.findall(r"^```.*?\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    return "\n".join([*fenced, *re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_are_commands(page):
    written = code(page.read_text(encoding="utf-8"))
    unknown = set(re.findall(r"^[$ ]*espalier ([a-z]+)", written, re.M)) - set(COMMANDS)
    assert not unknown, f"{page.name} names commands that are none: {unknown}"
    targets = set(re.findall(r"^([a-z%-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = {t for t in re.findall(r"^[$ ]*make ([a-z-]+)", written, re.M) if not t.startswith("bench-")}
    assert named <= targets, f"{page.name} names make targets that are none: {named - targets}"


def test_every_command_is_listed():
    table = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"[`|, ]([a-z]+)", "\n".join(x for x in table.splitlines() if x.startswith("|"))))
    assert set(COMMANDS) <= listed, f"docs/commands.md lacks {set(COMMANDS) - listed}"


def test_pictures_are_small():
    assert all(p.stat().st_size < 400_000 for p in (ROOT / "docs/images").glob("*"))
