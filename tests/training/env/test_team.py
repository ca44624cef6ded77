"""Games for two: fewest steps by hand for each partner, what is shown and what is hidden, luck, and bad input in one sentence."""

import pytest

from synth.families.teamwork import WORDINGS, solve, teamwork
from synth.types import Problem, Scored
from synth.verify._team import GAMES, RULES, best, read
from training.env.team import team

SUM = Problem.make(prompt="What is 2 + 2?", answer="4", verifier="number", family="x", split="train")
HAND = ((3, 1, 2), 2, 0, frozenset(), 0)  # cards, how many to play, played, pointed at, the last


def drawn(rule, i=0, **more):
    problem = teamwork(0, "train", i, rules=[rule], env="team", **more)
    assert isinstance(problem, Problem)
    return problem


def played(problem, *turns, **knobs):
    host, texts = team(**knobs), []
    state, shown = host.start(problem, {})
    for text in turns:
        messages, over, score = host.step(state, text)
        texts += [m.content for m in messages]
        if over:
            return shown[-1].content, texts, score
    return shown[-1].content, texts, None


@pytest.mark.parametrize(
    ("game", "state", "rule", "acts"),
    [
        # 4 rooms up or 3 down: who comes down is met in 2, who goes up in 2 the other way, who opposes in 3 // 2 + 1, who stays in 3.
        ("meet", (7, 1, 5, "stay"), "down", 2),
        ("meet", (7, 1, 5, "stay"), "up", 2),
        ("meet", (7, 1, 5, "stay"), "opposes", 2),
        ("meet", (7, 1, 5, "stay"), "stays", 3),
        ("meet", (12, 1, 5, "stay"), "up", 4),
        # five tasks alone; with help the three of the pie, one after another, take the three steps
        ("kitchen", (("soup", ("cook", "serve")), ("pie", ("chop", "cook", "serve"))), "waits", 5),
        ("kitchen", (("soup", ("cook", "serve")), ("pie", ("chop", "cook", "serve"))), "first", 3),
        ("kitchen", (("soup", ("cook", "serve")), ("pie", ("chop", "cook", "serve"))), "last", 3),
        ("kitchen", (("soup", ("cook", "serve")), ("pie", ("chop", "cook", "serve"))), "cooks", 3),
        # two plays, and hints: 1 and 2 one after the other; or two of three cards, of which the third is then known
        ("hints", HAND, "next", 4),
        ("hints", HAND, "top", 4),
        ("hints", HAND, "left", 4),
        ("hints", ((1, 3, 2), 1, 0, frozenset(), 0), "left", 2),
        ("hints", ((1, 3, 2), 1, 0, frozenset(), 0), "top", 3),
    ],
)
def test_the_fewest_steps_by_hand(game, state, rule, acts):
    assert len(best(GAMES[game], state, rule)) == acts


@pytest.mark.parametrize("rule", RULES)
def test_the_best_turns_earn_all_and_nothing_shorter_is_sure(rule):
    for i in range(6):
        problem = drawn(rule, i, levels=[1, 2])
        _, _, score = played(problem, *problem.lineage["demonstration"], told=False)
        assert isinstance(score, Scored) and score.value == 1.0
        assert score.parts["steps"] == score.parts["fewest"] == float(solve(problem.question))


def test_the_game_is_read_in_every_wording():
    fields = {
        "meet": {"rooms": "7", "you": "1", "partner": "5"},
        "kitchen": {"orders": "soup cook serve; pie chop cook serve"},
        "hints": {"cards": "3 1 2", "size": "3", "goal": "2"},
    }
    starts = {
        "meet": (7, 1, 5, "stay"),
        "kitchen": (("soup", ("cook", "serve")), ("pie", ("chop", "cook", "serve"))),
        "hints": HAND,
    }
    for rule, game in RULES.items():
        for form in WORDINGS[game].forms:
            told = read(form.format(**fields[game], rule=GAMES[game].SAID[rule]))
            assert told == (game, starts[game], rule)


def test_no_card_is_shown_before_it_is_named():
    for i in range(12):
        problem = drawn("left", i)
        shown, texts, _ = played(problem, "<act>ask</act>")
        cards = WORDINGS["hints"].read(problem.question)["cards"]
        assert cards not in shown and shown.startswith("Asked, your partner names your first card from the left")
        assert texts[0].endswith(f"Your partner says: place 1 is {cards.split()[0]}.")


def test_the_rule_is_told_where_it_is_his_own_and_asked_for():
    problem = drawn("up")
    assert played(problem)[0].startswith("Your partner goes one up each time. A ring")
    assert played(problem, told=False)[0].startswith("A ring")
    assert played(problem, partners=["stays"])[0].startswith("A ring"), "a strange partner does not introduce himself"
    assert played(problem, partners=["cooks"])[0].startswith("Your partner goes one up"), "of another game"


def test_luck_earns_no_more_than_knowledge_and_a_wrong_card_nothing():
    problem = next(p for i in range(40) if (p := drawn("next", i)).answer == "4")
    cards = WORDINGS["hints"].read(problem.question)["cards"].split()
    lucky = [f"<act>{cards.index(x) + 1}</act>" for x in "12"]
    assert played(problem, *lucky)[2].value == 1.0
    assert played(problem, lucky[1])[2].value == 0.0


def test_what_is_not_open_is_refused_and_takes_no_time():
    problem = drawn("down")
    _, texts, score = played(problem, "up", "<act>jump</act>", *problem.lineage["demonstration"], slack=9)
    assert texts[:2] == ["You may: up stay down."] * 2
    assert score.value == 1.0 and score.parts["illegal"] == 2.0
    assert played(problem, *["<act>jump</act>"] * 99)[2].value == 0.0


def test_bad_input_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="tells no game for two: those of the family teamwork do"):
        team().start(SUM, {})
    with pytest.raises(ValueError, match=r"partners \['up', 'down'\]: name at most one rule a game of up, down"):
        team(partners=["up", "down"])
    with pytest.raises(ValueError, match="name at most one rule a game"):
        team(partners=["kind"])
    with pytest.raises(ValueError, match="the fewest steps must be allowed"):
        team(slack=0.5)
    for rules in ([], ["kind"]):
        with pytest.raises(ValueError, match="name some of up, down"):
            teamwork(0, "train", 0, rules=rules)
