"""Questions about a corridor: what is there, and where the partner will be; each by hand, and bad input in one sentence."""

import pytest

from synth.families.partner_moves import partner_moves, pose, solve
from synth.types import Problem


def test_what_is_there_by_hand():
    for partner, parcels, nearest in ((5, (3, 7), 3), (5, (2, 7), 7), (1, (9,), 9), (8, (2, 8), 8)):
        posed = pose((9, 4, partner, parcels, "lowest", 0))
        assert posed["answer"] == solve(posed["prompt"]) == str(nearest)
        assert "of two the lower?" in posed["prompt"]


def test_where_the_partner_will_be_by_hand():
    posed = pose((9, 4, 5, (3, 9), "highest", 2))
    assert posed["answer"] == solve(posed["prompt"]) == "7"


def test_both_kinds_are_asked_and_the_default_asks_for_moves_alone():
    both = [partner_moves(0, "train", i, asks=["moves", "there"]) for i in range(40)]
    kinds = {"nearest to your partner now" in p.question for p in both if isinstance(p, Problem)}
    assert kinds == {True, False} and len([p for p in both if isinstance(p, Problem)]) == 40
    plain = [partner_moves(0, "train", i) for i in range(20)]
    assert not any("nearest to your partner now" in p.question for p in plain if isinstance(p, Problem))


@pytest.mark.parametrize("knobs", [{"asks": []}, {"asks": ["why"]}, {"rules": ["still"]}])
def test_unknown_questions_and_partners_are_refused(knobs):
    with pytest.raises(ValueError, match="name some of"):
        partner_moves(0, "train", 0, **knobs)
