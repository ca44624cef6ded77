"""A judge behind an endpoint as a reward of the stage rl: attacked first, asked about the answers of a group, within a
budget."""

import csv
import json
import re
import shutil
import signal
import threading

import pytest
import small

from synth.types import Message, Problem, Scored, Unscorable
from tasks.core.errors import UserError
from tasks.models import judge
from tasks.runtime.stage import Stage
from tests.tasks.stages.test_training_stages import play
from tests.training.rollout.test_endpoint import Server
from training.types import Group, Rollout

REWARDS = [{"piece": "weighted_parts", "parts": ["value", "judge"], "weights": [1.0, 0.5]}]


def fair(shown):
    """Prefers the answer that holds the reference; of two that do not, the shorter."""
    parts = dict(re.findall(r"<<< (.+?)\n(.*?)\n>>>", shown, re.DOTALL))
    right = parts["Reference"].removeprefix("| ")
    marks = [(right in re.split(r"[ ‹›/]", parts[f"Answer {i}"]), -len(parts[f"Answer {i}"])) for i in (1, 2)]
    return f"<verdict>{'tie' if marks[0] == marks[1] else 1 if marks[0] > marks[1] else 2}</verdict>"


@pytest.fixture
def server():
    stub = Server(lambda body: stub.says(body["messages"][0]["content"]))
    stub.says = fair
    yield stub
    stub.http.shutdown()
    stub.http.server_close()


def problems(n=6):
    fixed = {"verifier": "exact", "env": "single", "family": "f", "split": "train"}
    return [Problem.make(prompt=f"Which letter is number {i}?", answer="bcdfgh"[i], **fixed) for i in range(n)]


def group(problem, *texts, name="g"):
    def one(text):
        messages = [Message(role="assistant", content=text)] if text is not None else []
        return Rollout(
            problem=problem,
            group=name,
            segments=(),
            score=Scored(value=0.0, parts={"answered": 1.0}),
            info={"messages": messages},
        )

    return Group(id=name, rollouts=tuple(map(one, texts)))


def trusted(tmp_path, server, answers=100, **more):
    return judge.rewarding(
        Stage("rl", root=tmp_path), {"url": server.url, "model": "fair", **more}, problems(), answers
    )


def opinions(one):
    return [r.score.parts["judge"] for r in one.rollouts]


def test_an_answer_is_worth_the_others_that_it_beats(tmp_path, server):
    referee = trusted(tmp_path, server, opponents=3)
    before = len(server.bodies)
    (rewarded,) = referee.rewarded([group(problems()[0], "it is b", "no", "it is b", "nobody")])
    assert opinions(rewarded) == [1.0, 0.5, 1.0, 0.0], "right beats both wrong ones, of which the shorter wins"
    assert len(server.bodies) - before == 6, "three kinds of answers, each pair in both orders, equal answers once"
    assert [r.score.parts["answered"] for r in rewarded.rollouts] == [1.0] * 4 and rewarded.id == "g"


def test_each_answer_is_put_beside_as_many_others_as_said(tmp_path, server):
    referee = trusted(tmp_path, server)
    before = len(server.bodies)
    referee.rewarded([group(problems()[0], *(f"answer {'x' * i}" for i in range(5)))])
    assert len(server.bodies) - before == 10, "a ring of five pairs, in both orders"
    assert [len(judge._ring(n, 1)) for n in range(5)] == [0, 0, 1, 3, 4] and len(judge._ring(4, 9)) == 6


def test_where_nothing_differs_nothing_is_asked(tmp_path, server):
    referee = trusted(tmp_path, server)
    before = len(server.bodies)
    alike, silent = referee.rewarded([group(problems()[0], "b", "b"), group(problems()[1], None, None)])
    assert opinions(alike) == opinions(silent) == [0.5, 0.5] and len(server.bodies) == before


def test_what_it_says_nothing_of_has_no_score(tmp_path, server):
    referee = trusted(tmp_path, server)
    server.says = lambda shown: "I like both." if "strange" in shown else fair(shown)
    (rewarded,) = referee.rewarded([group(problems()[0], "it is b", "strange")])
    assert [r.score.reason.partition(":")[0] for r in rewarded.rollouts] == ["no_verdict"] * 2
    (rewarded,) = referee.rewarded([group(problems()[0], "it is b", "strange", "nobody")])
    assert [isinstance(r.score, Unscorable) for r in rewarded.rollouts] == [False, True, False], (
        "the others still had each other"
    )
    assert [r.score.parts["judge"] for r in rewarded.rollouts if isinstance(r.score, Scored)] == [1.0, 0.0]
    (again,) = referee.rewarded([rewarded])
    assert isinstance(again.rollouts[1].score, Unscorable), "what has no score is not judged again"


def test_a_rollout_sampled_in_another_thread_is_judged_too(tmp_path, server):
    referee, rewarded = trusted(tmp_path, server), []
    other = threading.Thread(
        target=lambda: rewarded.extend(referee.rewarded([group(problems()[0], "it is b", "nobody")]))
    )
    other.start()
    other.join()
    assert opinions(rewarded[0]) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (
            lambda shown: "<verdict>1</verdict>",
            "rl.judge: this judge cannot be trusted .*the same verdict in both orders: 0%",
        ),
        (lambda shown: "I like both.", "rl.judge: this judge cannot be trusted .*without a verdict: 100%"),
        (
            lambda shown: f"<verdict>{1 + (len(shown.partition('<<< Answer 2')[0]) < len(shown) / 2)}</verdict>",
            "padding",
        ),
    ],
)
def test_a_judge_that_can_be_fooled_is_refused(tmp_path, server, says, why):
    server.says = says
    with pytest.raises(UserError, match=why):
        trusted(tmp_path, server)


def test_a_judge_is_attacked_as_it_will_be_asked(tmp_path, server):
    trusted(tmp_path, server)
    assert all("<<< Reference" in b["messages"][0]["content"] for b in server.bodies)
    before = len(server.bodies)
    server.says = lambda shown: f"<verdict>{2 if 'I do not' in shown.partition('<<< Answer 2')[0] else 1}</verdict>"
    with pytest.raises(UserError, match="master_key"):
        trusted(tmp_path, server, reference=False)
    assert not any("<<< Reference" in b["messages"][0]["content"] for b in server.bodies[before:])


def test_what_is_asked_at_most_must_be_in_the_budget(tmp_path, server):
    with pytest.raises(
        UserError, match="1,000 answers and 18 attacks are up to 2,036 calls, and calls is 2,000: raise it"
    ):
        trusted(tmp_path, server, answers=1000, calls=2000)
    with pytest.raises(UserError, match="opponents = 0"):
        trusted(tmp_path, server, opponents=0)
    with pytest.raises(UserError, match="rl.judge: unknown key 'oponents': did you mean 'opponents'"):
        trusted(tmp_path, server, oponents=2)
    assert not server.bodies
    poor = trusted(tmp_path, server, characters=40_000)
    with pytest.raises(UserError, match="rl.judge: the judge's budget of 40000 characters does not cover"):
        poor.rewarded([group(problems()[0], "x" * 8000, "nobody")])


# --- in the stage
# -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("judged") / "project"
    root.mkdir()
    small.write_project(root)
    for name in ("kb", "questions", "problems", "demonstrations", "sft"):
        play(root, name)
    return root


def judged(root, server, **more):
    spec = {"url": server.url, "model": "fair", "audit": 3}
    return play(
        root,
        "rl",
        **{
            "judge": spec,
            "rewards": REWARDS,
            "sampling": {"max_turn_tokens": 8},
            "steps": 3,
            "curriculum": {"piece": "uniform"},
            **more,
        },
    )


def test_the_stage_learns_from_what_the_judge_says(project, server):
    kept = judged(project, server)
    assert kept["judge"] == {"model": "fair", "attacks": 9}
    played = [b["messages"][0]["content"] for b in server.bodies]
    assert len(played) > 18, "nine attacks in both orders, and then answers"
    episodes = [json.loads(line) for line in (project / "artifacts/rl/episodes.jsonl").read_text().splitlines()]
    assert {e["judge"] for e in episodes} <= {0.0, 0.5, 1.0} and any(e["judge"] != 0.5 for e in episodes)
    with (project / "artifacts/rl/curve.csv").open() as f:
        curve = list(csv.DictReader(f))
    assert any(float(r["grad_norm"] or 0) > 0 for r in curve), (
        "no answer is right: what is learned is the judge's opinion alone"
    )
    assert all(float(r["reward"]) == 0.0 for r in curve)
    first = small.outputs(project, "rl")
    before = len(server.bodies)
    judged(project, server)
    assert len(server.bodies) == before and small.outputs(project, "rl") == first, "what it said is paid for once"


def test_nothing_is_played_before_the_attacks(project, server, monkeypatch):
    from tasks.stages import rl as module

    monkeypatch.setattr(module, "Player", None)
    server.says = lambda shown: "<verdict>1</verdict>"
    with pytest.raises(UserError, match="rl.judge: this judge cannot be trusted"):
        judged(project, server)
    before = len(server.bodies)
    with pytest.raises(UserError, match="no piece reads what the judge says"):
        judged(project, server, rewards=[])
    assert len(server.bodies) == before, "a judge that nobody listens to is not even asked"


def test_too_many_answers_without_a_verdict_stop_the_run(project, server):
    server.says = lambda shown: fair(shown) if len(server.bodies) <= 18 else "I like both."
    with pytest.raises(ValueError, match="could not be scored.*no_verdict"):
        judged(project, server)


def test_the_verdict_alone_is_the_reward_where_a_piece_says_so(project, server):
    judged(project, server, rewards=[{"piece": "rescaled_part", "name": "judge", "low": 0.0, "high": 1.0}], steps=1)
    with (project / "artifacts/rl/curve.csv").open() as f:
        assert float(next(csv.DictReader(f))["grad_norm"]) > 0


def test_guides_are_judged_beside_what_was_played(project, server):
    kept = judged(project, server, group_transforms=[{"piece": "demonstrations"}], steps=1)
    assert kept["judge"]["attacks"] == 9
    assert any("\n| ‹answer›" in b["messages"][0]["content"] for b in server.bodies[18:]), (
        "the demonstration stood beside the policy's answers"
    )


def test_the_overlapped_sampler_asks_from_its_own_thread(project, server):
    assert judged(project, server, asynchrony={"piece": "one_off"}, max_mismatch=10.0)["judge"]["model"] == "fair"


@pytest.mark.slow
def test_a_run_that_is_killed_pays_for_nothing_twice(project, server, tmp_path, monkeypatch):
    knobs = {
        "judge": {"url": server.url, "model": "fair", "audit": 3},
        "rewards": REWARDS,
        "sampling": {"max_turn_tokens": 8},
        "curriculum": {"piece": "uniform"},
    }
    monkeypatch.setitem(small.SIZES, "rl", {**small.SIZES["rl"], **knobs})
    requests = []
    for name, fault in (("killed", "train.step:4=kill"), ("whole", "")):
        root = shutil.copytree(project, tmp_path / name, ignore=shutil.ignore_patterns("rl", "judge.sqlite", "work"))
        small.write_project(root)
        before = len(server.bodies)
        if fault:
            small.run(root, "rl", fault=fault, expect=-signal.SIGKILL)
            assert len(server.bodies) > before
        small.run(root, "rl")
        requests.append(len(server.bodies) - before)
    assert requests[0] == requests[1] and small.outputs(tmp_path / "killed", "rl") == small.outputs(
        tmp_path / "whole", "rl"
    )
