"""Episodes played with a scripted model: verdicts, what a rollout holds, identity of groups, seeds."""

import re

import numpy as np
import pytest
import tiny

from synth.types import Message, Problem, Sampling, Scored, Unscorable
from synth.verify import verdict
from training.env.search import search
from training.env.single import single
from training.learner.learner import token_stats
from training.learner.pack import pack, rollout_rows
from training.rl.reward import part
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.types import Group

NAMES = ["Norvia", "Zelton", "Karo", "Milbe"]


def question(name="Norvia", env="search", **more):
    return Problem.make(
        prompt=f"What is the capital of {name} ?",
        answer=f"City{name}",
        verifier="exact",
        args={"aliases": []},
        env=env,
        family="f",
        split="train",
        **more,
    )


class Tool:
    def __init__(self):
        self.asked = []

    def __call__(self, query):
        self.asked.append(query)
        return f"The capital of {query.split()[-1]} is City{query.split()[-1]}."


def player(say, *, envs=None, tools=None, max_tokens=400, **more):
    source = tiny.Scripted(say)
    return Player(
        sampler=source,
        renderer=source.renderer,
        envs=envs or {"search": search(max_calls=2), "single": single()},
        tools={"search": Tool()} if tools is None else tools,
        sampling=Sampling(max_tokens=40),
        max_tokens=max_tokens,
        **more,
    )


def one(say, problem=None, **more):
    return player(say, **more).play([problem or question()], 1, "seed")[0].rollouts[0]


def told(text):
    """What the last tool message said."""
    return re.findall(r"is (City\w+)\.", text)


def solves(seen, seed):
    name = re.search(r"capital of (\w+)", seen).group(1)
    return f"<answer>{told(seen)[-1]}</answer>" if told(seen) else f"<search>capital of {name}</search>"


def searches(seen, seed):
    return "<search>capital of Karo</search>"


def never_ends(seen, seed):
    return "and so on and on ..."


def cut_in_the_answer(seen, seed):
    return "<answer>CityNorvia</answer> ..."


@pytest.mark.parametrize(
    ("say", "value", "parts", "calls"),
    [
        (solves, 1.0, {"answered": 1.0, "calls": 1.0}, 1),
        (lambda seen, seed: "<answer>CityKaro</answer>", 0.0, {"answered": 1.0, "calls": 0.0, "parsed": 1.0}, 0),
        (lambda seen, seed: "<search>open", 0.0, {"malformed": 1.0, "answered": 0.0}, 0),
        (lambda seen, seed: "", 0.0, {"malformed": 1.0}, 0),
        (searches, 0.0, {"malformed": 0.0, "calls": 2.0}, 2),
        (never_ends, 0.0, {"truncated": 1.0}, 0),
        (cut_in_the_answer, 0.0, {"truncated": 1.0}, 0),
        (lambda seen, seed: "<search>a</search><answer>CityNorvia</answer>", 1.0, {"answered": 1.0, "calls": 0.0}, 0),
    ],
    ids=[
        "right",
        "wrong",
        "open tag",
        "nothing said",
        "out of calls",
        "cut",
        "cut after an answer",
        "answer beside a search",
    ],
)
def test_verdicts(say, value, parts, calls):
    rollout = one(say)
    assert isinstance(rollout.score, Scored) and rollout.score.value == value
    assert parts.items() <= rollout.score.parts.items()
    assert rollout.info["calls"] == calls


def test_a_conversation_that_could_outgrow_its_budget_ends():
    """Before the turn that could: the env's last words are not part of the rollout, the model's are."""
    long = lambda query: "The capital of Karo is CityKaro. " * 20  # noqa: E731
    rollout = one(solves, tools={"search": long}, max_tokens=200)
    assert rollout.score == Scored(value=0.0, parts={"truncated": 1.0})
    assert [s.role for s in rollout.segments] == ["env", "model"] and len(rollout.ids) <= 200
    with pytest.raises(ValueError, match="the prompt of problem .* has .* tokens: with 40 for a turn"):
        one(solves, max_tokens=50)


def test_what_a_rollout_holds():
    rollout = one(solves)
    renderer = tiny.Scripted(solves).renderer
    messages = rollout.info["messages"]
    assert [m.role for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert [s.role for s in rollout.segments] == ["env", "model", "env", "model"] and rollout.turns == 2
    ids, mask = renderer.demonstration(messages)
    np.testing.assert_array_equal(rollout.ids, ids)
    (row,) = rollout_rows(player(solves).play([question()], 1, "s"), [[1.0]])
    np.testing.assert_array_equal(row.trainable, mask)
    assert rollout.n_model == mask.sum() and "[tool] The capital of Norvia is CityNorvia." in rollout.text
    assert (row.columns["sampling_logp"] == np.where(mask, -0.5, 0)).all() and (
        row.columns["advantages"] == np.where(mask, 1.0, 0)
    ).all()
    assert (row.columns["sampling_entropy"] == np.where(mask, 0.5, 0)).all()


def test_instructions_are_the_first_message():
    rollout = one(solves, envs={"search": search(instructions="Be brief.")})
    assert rollout.info["messages"][0] == Message(role="system", content="Be brief.")
    rollout = one(
        lambda seen, seed: "<answer>1</answer>",
        question(env="single"),
        envs={"single": single(instructions="Be brief.")},
    )
    assert rollout.info["messages"][0] == Message(role="system", content="Be brief.")


@pytest.mark.parametrize(
    ("text", "reward", "value", "answered"),
    [
        ("so <answer>CityNorvia</answer>", 0.1, 1.0, 1.0),
        ("<answer>?</answer>", 0.1, 0.1, 1.0),
        ("<answer>?</answer>", 0.0, 0.0, 1.0),
        ("CityNorvia", 0.1, 0.0, 0.0),
    ],
)
def test_one_question_one_answer(text, reward, value, answered):
    rollout = one(lambda seen, seed: text, question(env="single"), envs={"single": single(format_reward=reward)})
    assert rollout.score.value == value and rollout.score.parts["answered"] == answered and rollout.turns == 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("it is <answer>CityNorvia", "truncated"),
        ("CityNorvia", "unparsable"),
        ("<answer>Karo</answer> or <answer>CityNor", "wrong"),  # the last complete answer counts
        ("<answer>CityNorvia</answer>", "correct"),
    ],
)
def test_an_answer_that_was_begun_is_truncated_and_reads_as_unanswered(text, word):
    rollout = one(lambda seen, seed: text, question(env="single"))
    assert verdict(rollout.score) == word
    answered = [
        float(a)
        for a in part(Group(id=rollout.group, rollouts=(rollout,)), np.array([rollout.score.value]), "answered")
    ]
    assert answered == [float(word in ("wrong", "correct"))], "what advantages of several parts read (gdpo, pama)"


@pytest.mark.parametrize("env", ["search", "single"])
def test_a_verdict_that_cannot_be_had_is_no_zero(env, monkeypatch):
    monkeypatch.setattr(f"training.env.{env}.verify", lambda problem, answer: Unscorable(reason="timeout: 2 s"))
    rollout = one(lambda seen, seed: "<answer>x</answer>", question(env=env))
    assert rollout.score == Unscorable(reason="timeout: 2 s")


def test_what_was_not_given_is_a_sentence():
    with pytest.raises(LookupError, match="plays in the environment 'single', which this run was not given"):
        one(solves, question(env="single"), envs={"search": search()})
    with pytest.raises(LookupError, match="no tool 'search' was given"):
        one(solves, tools={})


def test_groups_have_an_identity():
    """The same problem drawn twice makes two groups; rollouts stay with their problem in whatever batch they are
    played."""
    problems = [question(n) for n in (*NAMES, NAMES[0])]
    for size in (1, 3, 256):
        groups = player(solves, batch_size=size).play(problems, 2, "s")
        assert [g.rollouts[0].problem.id for g in groups] == [p.id for p in problems] and len(
            {g.id for g in groups}
        ) == 5
        assert all(len(g.rollouts) == 2 and r.group == g.id for g in groups for r in g.rollouts)
        assert all(r.score.value == 1.0 for g in groups for r in g.rollouts), "each conversation sees its own passages"


def test_conversations_that_ended_leave_the_batch():
    def some(seen, seed):
        return solves(seen, seed) if "Norvia" in seen or "Karo" in seen else "<answer>?</answer>"

    p = player(some)
    p.play([question(n) for n in NAMES], 1, "s")
    assert p.sampler.batches == [4, 2]


def test_seeds_are_of_the_problem_its_place_and_the_sample():
    seen = []
    p = player(lambda text, seed: seen.append(seed) or "<answer>x</answer>")
    problems = [question(n) for n in NAMES]
    p.play(problems, 2, 0, "rl", 3)
    first = list(seen)
    assert len(set(first)) == 8
    p.play(problems, 2, 0, "rl", 3)
    assert seen[8:] == first
    p.play(problems, 2, 0, "rl", 4)
    assert not set(seen[16:]) & set(first)


def test_the_real_sampler_plays_the_same_way():
    """Deterministic by seed, scored, and on its rows the learner's log-probs are the sampler's."""
    source = TorchSampler(tiny.build(init_range=0.05), tiny.tokenizer().eos_token_id)
    renderer = tiny.Scripted(solves).renderer
    p = Player(
        sampler=source,
        renderer=renderer,
        envs={"search": search()},
        tools={"search": Tool()},
        sampling=Sampling(max_tokens=8),
    )
    groups = p.play([question(n) for n in NAMES], 2, 5)
    again = p.play([question(n) for n in NAMES], 2, 5)
    assert [r.ids.tolist() for g in groups for r in g.rollouts] == [r.ids.tolist() for g in again for r in g.rollouts]
    batch = pack(rollout_rows(groups, [[1.0, 1.0]] * 4))
    d = token_stats(source.model, batch).logp.detach() - batch.columns["sampling_logp"]
    assert float(d[batch.trainable].abs().max()) < 1e-4
