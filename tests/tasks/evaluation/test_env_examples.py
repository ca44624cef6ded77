"""The worked examples of `espalier env show`: three of every environment, played now, and told apart by its reward."""

import pytest

from docs.generators import environments as page
from flows.cli import main
from tasks.core.errors import UserError
from tasks.evaluation.env_examples import KNOWN, LATER, examples, lines
from tasks.planning.environments import environments

NAMES = [e.name for e in environments()]


@pytest.mark.parametrize("name", NAMES)
def test_three_examples_of_every_environment(name):
    shown = examples(name)
    assert len({e.problem.id for e in shown}) == 3
    for e in shown:
        assert e.shown[-1].content and e.right.talk and e.wrong.talk
        if name in LATER:
            assert (e.right.parts["answered"], e.wrong.parts["answered"]) == (1.0, 0.0)
        else:
            assert e.right.value > e.wrong.value
    assert examples(name) == shown, "the same ways again"


# what the rules of their files pay at best for these problems, with the knobs as they are
BEST = dict.fromkeys(
    "ask calculator corridor game goods halves offers persuade program python search single sql team tools walk".split(),
    1.0,
)


@pytest.mark.parametrize(("name", "best"), [*BEST.items(), ("second_look", 2.0), ("user", 0.9), ("retry", 1.0)])
def test_the_right_way_earns_what_the_rules_pay_at_best(name, best):
    assert [e.right.value for e in examples(name)] == pytest.approx([best] * 3)


def test_every_environment_has_its_programs_and_no_other():
    assert sorted(KNOWN) == NAMES


def test_show_prints_them(capsys):
    assert main(["env", "show", "corridor"]) == 0
    out = capsys.readouterr().out
    assert out.count("right: reward 1\n") == 3 and out.count("wrong: reward") == 3 and "slack" in out
    assert main(["env", "show", "propose"]) == 0
    assert "right: what a proposal is worth is known once it was certified" in capsys.readouterr().out


def test_an_environment_of_the_users_is_shown_without(tmp_path, monkeypatch, capsys):
    (own := tmp_path / "env").mkdir()
    (own / "mine.py").write_text('"""My own."""\n\n\ndef mine(*, most: int = 3):\n    return None\n')
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    assert main(["env", "show", "mine"]) == 0
    assert "mine is not one of the project's own" in (out := capsys.readouterr().out) and "most" in out
    with pytest.raises(UserError, match="espalier env audit mine"):
        lines("mine")


def test_the_page_of_examples_is_the_generated_one():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run `make environments`"
