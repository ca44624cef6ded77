"""What is right is paid in whatever spelling, what is only near is not: the table of tests/support/spellings.py."""

from __future__ import annotations

from collections import Counter

import pytest

from synth.types import Problem, Unscorable
from synth.verify import verify
from synth.verify._spelling import plain
from tests.support.spellings import GRAMMAR, table


def test_no_verdict_of_the_table_is_false():
    told, false = Counter(), []
    for case in table():
        score = verify(case.problem, case.answer)
        told[case.right] += 1
        if isinstance(score, Unscorable):
            if not score.reason.startswith(("missing", "refused")):  # a package or the sandbox that is not here
                false.append(f"{case}: {score.reason}")
        elif (score.value == 1.0) != case.right:
            false.append(f"{case} is {'refused' if case.right else 'paid'}")
    assert not false, "\n".join(false[:20])
    assert told[True] >= 1000 and told[False] >= 1000
    assert len(GRAMMAR) >= 18


@pytest.mark.parametrize(
    ("form", "answer", "read"),
    [
        ("text", "\u00a0**Bern**.", "Bern"),
        ("text", "**a** or **b**", "**a** or **b**"),
        ("text", "C#", "C#"),
        ("number", "$\\frac{3}{2}$", "3/2"),
        ("number", "1\\frac{1}{2}", "1 1/2"),
        ("math", "2\\frac{x}{3}", "2((x)/(3))"),
        ("math", "x\u00b3 \u00d7 2", "x^3 * 2"),
        ("code", "```sql\r\nSELECT 1\r\n```", "SELECT 1"),
        ("data", "SELECT name FROM city WHERE land = 'Oslo'.", "SELECT name FROM city WHERE land = 'Oslo'"),
        ("data", "```sql\nSELECT 1;\n```.", "SELECT 1;"),
        ("data", "** SELECT 1 **.", "SELECT 1"),
        ("data", '{"cities": ["Oslo"]}.', '{"cities": ["Oslo"]}'),
        ("code", "return x.", "return x."),
        ("code", "x = '\u2212\u00d7'", "x = '\u2212\u00d7'"),
        ("latex", "x\u00b2\u00b7y", "x^{2}\\cdot y"),
        ("literal", "`ab`", "ab"),
        ("literal", "a-b.", "a-b."),
    ],
)
def test_one_reading_of_each_form(form, answer, read):
    assert plain(answer, form) == read


def test_a_text_to_copy_that_holds_markup_is_not_unwrapped():
    assert plain("`a`", "literal", "Write a in backticks.", "`a`") == "`a`"
    assert plain("*a*", "literal", "Write *a*.", "a") == "*a*"
    assert plain("`a`", "literal", "Write `b` and then a.", "a") == "`a`"


def test_the_reading_is_linear_in_hostile_text():
    for text in (
        "$" * 9_000,
        "\\text{" * 1_500,
        "**" * 4_000,
        "{" * 9_000,
        "\\frac{" * 1_500,
        "1 " * 4_999,
        "`\n" * 4_000,
    ):
        for form in ("code", "data", "literal", "text", "number", "math", "latex"):
            assert isinstance(plain(text, form), str)


def test_a_verifier_of_a_user_gets_the_answer_as_it_was_written(monkeypatch):
    from types import SimpleNamespace

    import synth.verify

    seen = []
    mine = SimpleNamespace(mine=lambda problem, answer: seen.append(answer))
    monkeypatch.setattr(synth.verify, "import_module", lambda name: mine)
    verify(Problem.make(prompt="?", answer="1", verifier="mine", family="f", split="train"), " **1**. ")
    assert seen == [" **1**. "]
