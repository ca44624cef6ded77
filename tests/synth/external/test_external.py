"""Environments of other people in processes of their own: what they say is passed on, what breaks in them is nobody's
score, and nothing of theirs runs here."""

import gc
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from synth.external import parent
from synth.external.parent import BESIDE, NO_ANSWER, External, Source, begin, opened, problem, score
from synth.types import Quarantined, Scored, Unscorable, UserError
from synth.verify import verify

SUPPORT = Path(__file__).parents[2] / "support"
SUMS = {"adapter": "file", "path": str(Path(parent.__file__).with_name("example.py"))}
GUESSING = {"adapter": "file", "path": str(SUPPORT / "guessing.py")}


@pytest.fixture
def own(tmp_path):
    """(lines, budgets) -> an entry for a file with these lines."""

    def made(lines, **more):
        path = tmp_path / f"own{len(list(tmp_path.iterdir()))}.py"
        head = 'def problem(seed, split, index):\n    return {"prompt": f"q{seed}", "answer": "a", "item": {"seed": seed}}\n'
        path.write_text(head + textwrap.dedent(lines))
        return {"adapter": "file", "path": str(path), **more}

    return made


def test_problems_are_a_function_of_seed_split_and_index():
    problems = [problem(SUMS, 3, "train", i) for i in range(20)]
    assert problems == [problem(SUMS, 3, "train", i) for i in range(20)]
    assert len({p.question for p in problems}) > 15 and all(
        p.env == "single" and p.family == "example" for p in problems
    )
    a, b = (int(x) for x in problems[0].question.removeprefix("What is ").removesuffix("?").split(" + "))
    assert problems[0].answer == str(a + b)
    assert verify(problems[0], f" {a + b} ") == Scored(value=1.0) and verify(problems[0], "1") == Scored(value=0.0)


def test_no_text_stands_in_two_splits():
    texts = {s: {problem(SUMS, 3, s, i).question for i in range(150)} for s in ("train", "valid", "test")}
    assert not texts["train"] & texts["test"] and not texts["train"] & texts["valid"]
    neighbours = [{problem(SUMS, seed, "train", i).question for i in range(150)} for seed in (3, 4)]
    assert len(neighbours[0] & neighbours[1]) < 10, "8,100 sums: few are met by chance"


def test_an_episode_is_played_turn_by_turn():
    p = problem(GUESSING, 3, "train", 0)
    assert p.env == "external" and p.answer == NO_ANSWER
    one, two = begin(p), begin(p)
    assert [m.content for m in one.messages] == ["Guess a number from 1 to 9."]
    for episode in (one, two):
        low = episode.turn("<answer>0</answer>")
        assert [m.content for m in low[0]] == ["higher"] and low[1:] == (False, 0.0)
        messages, over, reward = episode.turn(f"<answer>{p.args['item']}</answer>")
        assert (messages[0].content, over, reward) == ("right", True, 1.0)


def test_episodes_that_nobody_holds_are_closed(own):
    source = own(
        """
        class Open:
            n = 0
            def __init__(self, item): Open.n += 1
            def start(self): return str(Open.n)
            def step(self, text): return "", True, 0.0
            def close(self): Open.n -= 1
        episode = Open
        """
    )
    p = problem(source, 0, "train", 0)
    held = [begin(p) for _ in range(3)]
    assert [e.messages[0].content for e in held] == ["1", "2", "3"]
    held.clear()
    gc.collect()
    assert begin(p).messages[0].content == "1"


BREAKS = {
    "raises": ('raise KeyError("solution")', "external_failed: KeyError: 'solution'"),
    "not a number": ("return float('nan')", "external_failed: ValueError: the score nan is no finite number"),
    "no score": ("return None", "external_failed: TypeError"),
    "exits": (
        "import os; print('I give up'); os._exit(3)",
        "external_crashed: its process ended with code 3: I give up",
    ),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "external_crashed: its process ended with signal 9"),
    "hangs": ("import time; time.sleep(60)", "external_timeout: no answer within 2 s"),
    "memory": (
        "x = bytearray(2 << 30)",
        "external_crashed: its process ended with code 1: it needs more memory than memory_mb",
    ),
    "talks": ("return 1.0, {'x' * (3 << 20): 1.0}", "external_output: a reply longer than 1 MB"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_is_unscorable_and_the_next_answer_is_scored(own, name):
    lines, reason = BREAKS[name]
    source = own(
        f"""
        def score(item, answer):
            if answer != "break":
                return float(answer == "a")
            {lines}
        """,
        seconds=2 if name == "hangs" else 300,
        memory_mb=1024,
        output_mb=1,
    )
    p = problem(source, 0, "train", 0)
    assert verify(p, "a") == Scored(value=1.0)
    broken = verify(p, "break")
    assert isinstance(broken, Unscorable) and broken.reason.startswith(reason), broken
    assert verify(p, "a") == Scored(value=1.0) and verify(p, "b") == Scored(value=0.0)


def test_an_episode_ends_with_the_process_that_another_broke(own):
    source = own(
        """
        import os
        class Plays:
            def __init__(self, item): pass
            def start(self): return "go"
            def step(self, text): return ("on", False, 0.5) if text == "on" else os._exit(1)
        episode = Plays
        """
    )
    p = problem(source, 0, "train", 0)
    one, two = begin(p), begin(p)
    assert one.turn("on")[2] == 0.5
    assert two.turn("break").reason.startswith("external_crashed")
    assert one.turn("on").reason == "external_lost: its process ended in another episode"
    assert begin(p).turn("on")[2] == 0.5


def test_what_it_prints_is_no_reply_and_keys_are_not_seen(own, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    source = own(
        """
        import os, sys
        print("loading", flush=True)
        def score(item, answer):
            print("noise")
            os.write(1, b"more noise")
            return 1.0, {"key": float("OPENAI_API_KEY" in os.environ), "mine": float(os.environ.get("MINE") == "x")}
        """,
        variables={"MINE": "x"},
    )
    assert score(source, {}, "a") == Scored(value=1.0, parts={"key": 0.0, "mine": 1.0})


def test_its_process_ends_with_this_ones_interest(own):
    there = External(Source.of(own("def score(item, answer): return 1")))
    pid = there._child.pid
    assert psutil.pid_exists(pid)
    there.close()
    there.close()
    assert not psutil.pid_exists(pid)


def test_problems_that_cannot_be_made_are_quarantined_with_the_reason(own):
    source = own("def score(item, answer): return 1\ndef problem(seed, split, index): return 1 / 0")
    result = problem(source, 0, "train", 0)
    assert (
        isinstance(result, Quarantined)
        and result.reason == "external_failed"
        and "ZeroDivisionError" in result.evidence
    )
    none = own("def score(item, answer): return 1\ndef problem(seed, split, index): return None")
    assert problem(none, 0, "train", 0) is None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"adapter": "reasoning_gim"}, "did you mean 'reasoning_gym'"),
        ({}, "there is no adapter ''"),
        ({"adapter": "file"}, "it needs the option path"),
        ({"adapter": "file", "path": "nowhere.py"}, "there is no file nowhere.py"),
        ({**SUMS, "pth": 1}, "it has no option 'pth'; its options are path"),
        ({**SUMS, "python": "/no/such/python"}, "name an interpreter that exists (python)"),
        ({**SUMS, "seconds": 0}, "seconds is 0, and must be above 0"),
        ({**SUMS, "python": "/bin/true"}, "its process ended with code 0"),
    ],
)
def test_what_does_not_start_is_one_sentence(entry, message):
    with pytest.raises(UserError) as e:
        opened(entry)
    assert message in str(e.value) and "\n" not in str(e.value)


def test_a_package_that_is_missing_or_another_version_is_named_with_the_remedy(tmp_path):
    with pytest.raises(
        UserError, match=r"the package \S+ is missing for .*: install it there, or name another interpreter"
    ):
        opened(
            {
                "adapter": "reasoning_core",
                "task": "arithmetics",
                "variables": {"PYTHONPATH": ""},
                "python": blocked(tmp_path),
            }
        )
    (tmp_path / "reasoning_core.py").write_text("")
    (tmp_path / "reasoning_core-9.0.dist-info").mkdir()
    (tmp_path / "reasoning_core-9.0.dist-info/METADATA").write_text("Name: reasoning-core\nVersion: 9.0\n")
    with pytest.raises(UserError, match=r"reasoning-core 9.0 is none that this adapter knows"):
        opened({"adapter": "reasoning_core", "task": "x", "variables": {"PYTHONPATH": str(tmp_path)}})


def blocked(tmp_path):
    """This interpreter without any installed package."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_the_plan_sees_every_file_that_the_process_runs():
    here = Path(parent.__file__).parent
    adapters = {f"adapters/{p.name}" for p in (here / "adapters").glob("[!_]*.py")}
    assert set(BESIDE) == adapters | {"child.py"}
