"""Worlds of decoders that hold a method against its nearest rival: what is asked, what is right, and what the rival gets."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tasks.lab import decode_worlds as worlds
from training.decode import Example
from training.decode._predicate import holds, stated
from training.decode.witness import FORMAL
from training.learner.pack import pack

NOTHING = np.zeros(0)


def test_a_number_is_wanted_where_the_statement_of_its_question_holds():
    tongue, rng = worlds._THEOREMS, np.random.default_rng(1)
    for _ in range(20):
        prompt = worlds._prompt(rng)
        statement = stated(tongue.asked(prompt))
        assert tongue.reads(FORMAL.format(p=statement)).tolist() == [17, *prompt]
        right = tongue.answer(rng, prompt)[:-1]
        for answer in (right, rng.integers(3, 16, 2)):
            number = tongue.said(worlds._letters(answer))
            assert holds(statement, int(number)) == (tongue.wanted(answer, prompt, NOTHING) == 1)
        assert tongue.wanted(right, prompt, NOTHING) == 1
    assert tongue.said("a") == tongue.said("d e f") == ""


def test_theorems_stand_behind_a_question_that_is_not_theirs():
    tongue, rng = worlds._THEOREMS, np.random.default_rng(2)
    prompt = worlds._prompt(rng)
    both = [tongue.lesson(rng, prompt) for _ in range(200)]
    questions = [reply for reply, read in both if not read]
    theorems = [reply for reply, read in both if read == 4]
    assert len(questions) + len(theorems) == 200 and 70 < len(questions) < 130
    assert all(reply.tolist() == tongue.answer(rng, prompt).tolist() for reply in questions)
    assert all(reply[4:].tolist() == tongue.answer(rng, reply[1:4]).tolist() for reply in theorems)
    assert not any(np.array_equal(reply[1:4], prompt) for reply in theorems)


def test_the_order_as_listed_is_the_best_that_is_the_same_for_all_questions():
    tongue, rng = worlds._DOUBTFUL, np.random.default_rng(3)
    shares = {}
    for _ in range(30_000):
        prompt = worlds._prompt(rng)
        answer = tongue.answer(rng, prompt)[:-1]
        shares.setdefault(tuple((answer - 3) % 6), []).append(tongue.wanted(answer, prompt, NOTHING))
    means = {order: float(np.mean(some)) for order, some in shares.items()}
    assert len(means) == 24 and max(means, key=means.get) == (0, 1, 2, 3)
    assert means[0, 1, 2, 3] > sorted(means.values())[-2] + 0.05
    errs = np.std([tongue.reward(rng, 0.5) for _ in range(2000)])
    assert 0.27 < errs < 0.33


def test_working_names_what_the_questions_name():
    tongue, rng = worlds._WORKED, np.random.default_rng(4)
    prompt, kinds = np.array([5, 14, 9]), Counter()
    for _ in range(400):
        reply, read = tongue.lesson(rng, prompt)
        kinds["working" if read == 0 else "looking up" if read == 5 else f"question {reply[0]}"] += 1
        if read == 0:
            assert reply[:2].tolist() == [14, 5] and reply[-1] == worlds.END
            assert tongue.wanted(reply[:-1], prompt, NOTHING) == 1 and tongue.wanted(reply[:-2], prompt, NOTHING) == 0
            assert tongue.said(worlds._letters(reply)) == worlds._letters(reply[2:3])
    assert set(kinds) == {"working", "looking up", "question 17", "question 18"} and min(kinds.values()) > 70
    before = worlds._HOPS  # as it was: the first token counts
    assert before.wanted(tongue.answer(rng, prompt)[:-1], prompt, NOTHING) == 1 and before.tokens == 2


def test_of_the_actions_some_need_an_item_some_one_of_two_and_some_fail_with_one():
    works = lambda action, prompt: worlds._MIXED.wanted(np.array([action]), np.array(prompt), NOTHING)  # noqa: E731
    alone = {a: {i for i in range(3, 16) if works(a, [i, i, i])} for a in worlds._ACTS}
    assert [len(alone[a]) for a in worlds._ACTS] == [1, 1, 1, 2, 2, 12, 12]
    assert len(set().union(*(alone[a] for a in list(worlds._ACTS)[:5]))) == 7  # each item serves one action
    assert works(3, [3, 4, 5]) == 0  # no action


def test_a_judge_learns_from_the_pairs_which_side_is_better():
    tongue, rng = replace(worlds._MIXED, steps=5, judged=60), np.random.default_rng(5)
    model = worlds._taught(tongue, 1)
    better, worse = np.array([17, worlds.END]), np.array([18, worlds.END])
    pairs = [Example(prompt=worlds._prompt(rng), chosen=better, rejected=worse) for _ in range(10)]
    engine = worlds.engine_of(tongue, model, NOTHING, 1, pairs)
    prompt = worlds._prompt(rng)
    good, bad = engine.rewards([np.concatenate([prompt, side]) for side in (better, worse)])
    assert good > 1 > -1 > bad


@pytest.mark.parametrize(("until", "steps"), [(9.0, 20), (0.0, 25)])
def test_teaching_ends_where_the_model_errs_as_little_as_the_world_says(monkeypatch, until, steps):
    taught = []
    monkeypatch.setattr(worlds, "pack", lambda rows: taught.append(rows) or pack(rows))
    worlds._taught(replace(worlds._THEOREMS, until=until, steps=25), 1)
    assert len(taught) == steps
