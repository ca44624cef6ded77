"""Offers in turn: the equilibrium by hand and by trying everything, each partner, and bad input in one sentence."""

import pytest

from synth.families.alternating_offers import WORDINGS, alternating_offers, backwards, pose, solve
from synth.types import Problem, Scored
from synth.verify._offers import PARTNERS, Pie, best, read
from training.env.offers import offers

SUM = Problem.make(prompt="What is 2 + 2?", answer="4", verifier="number", family="x", split="train")
TWELVE = Pie(12, 3, 3, True)  # 12, 9, 6 coins: the last keeps 6, the second 9 - 6 = 3, the first 12 - 3 = 9


def posed(pie, kind=0):
    given = {k: v for k, v in pose((pie, kind)).items() if k != "working"}
    return Problem.make(**given, env="offers", family="alternating_offers", split="train")


def played(pie, *turns, **knobs):
    host, texts = offers(**knobs), []
    state, shown = host.start(posed(pie), {})
    texts.append(shown[-1].content)
    for text in turns:
        messages, over, score = host.step(state, text)
        texts += [m.content for m in messages]
        if over:
            return texts, score
    return texts, None


@pytest.mark.parametrize(
    ("pie", "keeps"),
    [
        (TWELVE, [9, 3, 6, 0]),
        (Pie(10, 4, 2, True), [4, 6, 0]),
        (Pie(10, 1, 1, True), [10, 0]),  # the ultimatum game: all is kept
        (Pie(20, 5, 4, False), [10, 10, 5, 5, 0]),  # 20 15 10 5
    ],
)
def test_the_equilibrium_by_hand(pie, keeps):
    assert [pie.keeps(t) for t in range(1, pie.rounds + 2)] == keeps
    for t in range(1, pie.rounds + 1):
        question = pose((pie, t))["prompt"]
        assert solve(question) == str(keeps[t - 1]) and read(question) == (pie, t)
    assert pose((pie, 0))["answer"] == solve(pose((pie, 0))["prompt"]) == str(keeps[1])


@pytest.mark.parametrize("form", WORDINGS["keeps"].forms)
def test_the_round_that_is_asked_about_is_read_in_every_wording(form):
    for first, rounds, asked in (("You offer", "3 rounds", 2), ("The other offers", "1 round", 1)):
        question = form.format(coins=12, rounds=rounds, loss=3, first=first, asked=asked)
        assert read(question) == (Pie(12, 3, int(rounds[0]), first == "You offer"), asked)
        assert solve(question) == ("3" if asked == 2 else "12")


def test_the_working_goes_back_from_the_last_round():
    assert backwards(TWELVE, 1) == "12 9 6; 0 6 3 9" and backwards(TWELVE, 3) == "12 9 6; 0 6"


@pytest.mark.parametrize("partner", PARTNERS)
@pytest.mark.parametrize(
    "pie", [TWELVE, Pie(12, 3, 3, False), Pie(17, 2, 4, False), Pie(9, 4, 2, False), Pie(8, 1, 1, True)]
)
def test_nothing_earns_more_than_the_best(partner, pie):
    """Every way to play, offers and replies alike."""

    def ways(t):
        if t > pie.rounds:
            yield []
            return
        now = (
            [f"<offer>{x}</offer>" for x in range(pie.left(t) + 1)]
            if pie.offered_by_you(t)
            else ["<reply>accept</reply>"]
        )
        for turn in now:
            yield [turn]
        for rest in ways(t + 1):
            yield [("<offer>0</offer>" if pie.offered_by_you(t) else "<reply>refuse</reply>"), *rest]

    scores = [score for way in ways(1) if isinstance(score := played(pie, *way, partners=[partner])[1], Scored)]
    assert max(s.value for s in scores) == 1.0
    assert max(s.parts["gained"] for s in scores) == best(pie, partner)


def test_an_equilibrium_offer_is_accepted_and_a_lower_one_is_answered():
    texts, score = played(TWELVE, "<think>12 9 6; 0 6 3</think><offer>3</offer>")
    assert texts == ["12 coins, 3 rounds at most, each refusal costs 3. Round 1, 12 coins: you offer."]
    assert score.value == 1.0 and score.parts == {"gained": 9.0, "best": 9.0, "agreed": 1.0, "rounds": 1.0, "gap": 0.0}
    # 2 of 12 are refused; of 9 the other keeps 3 and offers the 6 that refusing would bring: 6 of 9
    texts, score = played(TWELVE, "<offer>2</offer>", "<reply>accept</reply>")
    assert texts[1] == "Refused. Round 2, 9 coins: you are offered 6."
    assert score.value == pytest.approx(6 / 9) and score.parts["gap"] == pytest.approx(1 / 12)
    # a generous offer costs what it gives away, and who refuses to the end has nothing
    assert played(TWELVE, "<offer>6</offer>")[1].value == pytest.approx(6 / 9)
    assert played(Pie(10, 4, 2, False), "<reply>refuse</reply>", "<offer>0</offer>")[1].value == 1.0
    end = played(TWELVE, "<offer>0</offer>", "<reply>refuse</reply>", "<offer>7</offer>")[1]
    assert end.value == 0.0 and end.parts["malformed"] == 1.0, "there are 6 coins in round 3"


def test_partners_who_do_not_play_the_equilibrium():
    # He offers half of 3, and you may have the 3 by offering 6 of 9 in round 2.
    late = Pie(12, 3, 3, False)
    texts, score = played(late, "<reply>refuse</reply>", "<offer>6</offer>", partners=["low"])
    assert texts[0].endswith("you are offered 1.") and score.value == 1.0 and score.parts["gained"] == 3.0
    assert played(late, "<reply>accept</reply>", partners=["low"])[1].value == pytest.approx(1 / 3)
    # Who wants half refuses the equilibrium's 3 of 12, and takes 6.
    assert played(TWELVE, "<offer>6</offer>", partners=["fair"])[1].value == 1.0
    assert (
        played(TWELVE, "<offer>3</offer>", partners=["fair"])[0][1] == "Refused. Round 2, 9 coins: you are offered 4."
    )


@pytest.mark.parametrize(
    "turn", ["3", "<reply>accept</reply>", "<offer>accept</offer>", "<offer>13</offer>", "<offer>3</reply>"]
)
def test_what_is_no_turn_ends_the_game(turn):
    score = played(TWELVE, turn)[1]
    assert score.value == 0.0 and score.parts["malformed"] == 1.0


def test_a_problem_carries_its_equilibrium():
    for i in range(8):
        p = alternating_offers(0, "train", i, levels=[1, 2, 3], asks=["offer"], env="offers")
        assert isinstance(p, Problem)
        host = offers()
        state, _ = host.start(p, {})
        assert host.step(state, p.lineage["demonstration"][0])[2].value == 1.0


def test_bad_input_in_one_sentence():
    with pytest.raises(ValueError, match="shares no coins: those of the family alternating_offers do"):
        offers().start(SUM, {})
    for partners in ([], ["kind"]):
        with pytest.raises(ValueError, match="name some of exact, low, fair"):
            offers(partners=partners)
    assert read(posed(TWELVE).question.replace("12 coins", "6 coins")) is None, "no coin is left in round 3"
