"""docs/examples/source-kinds.md has forty questions of each kind of source, in good English, as the code writes them."""

import re

import pytest

from docs.generators import source_kinds as page
from tests.support.grammar import question_faults

ASKED = re.compile(r"\d+\. (?P<question>.+) \*(?P<answer>[^*]+)\*")


def parts() -> dict[str, list[str]]:
    """Kind of source -> the lines of its part."""
    text = page.PAGE.read_text(encoding="utf-8")
    return {head: lines.splitlines() for head, _, lines in (p.partition("\n") for p in text.split("\n## ")[1:])}


def test_forty_of_each_kind_without_a_fault():
    assert list(parts()) == list(page.KINDS) and page.PAGE.read_text(encoding="utf-8").startswith(page.HEAD)
    for kind, lines in parts().items():
        questions = [m["question"] for line in lines if (m := ASKED.fullmatch(line))]
        assert len(questions) == len(set(questions)) == page.SHOWN, kind
        assert not {q: faults for q in questions if (faults := question_faults(q))}


@pytest.mark.parametrize("kind", page.KINDS)
def test_the_page_is_what_the_code_writes(kind, tmp_path):
    assert "\n".join(page.section(kind, tmp_path)[2:]).strip() == "\n".join(parts()[kind]).strip(), "make examples"
