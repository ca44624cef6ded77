"""The audit of a reward finds each planted defect by its own check, and passes graders that are sound."""

import json
import sys
import textwrap

import pytest

from flows.cli import main
from synth.families.countdown import countdown
from synth.types import Problem
from tasks.core.errors import UserError
from tasks.evaluation import env_audit
from tasks.planning import pieces
from training.env.single import single

# A sound verifier, into which one defect each is planted.
SOUND = """
import os, random, socket, subprocess
from synth.types import Scored

def {name}(problem, answer, **args):
    if args:
        raise TypeError(f"no such knob: {{[*args]}}")
    {defect}
    return Scored(value=float(answer == problem.answer), parts={{}})
"""
DEFECTS = {
    "sound": ("pass", None),
    "executes": (
        "exec(compile(answer, 'answer', 'exec'), {}) if '=' in answer else None",
        "no answer is executed in this process",
    ),
    "evaluates": (
        "eval(answer, {'espalier_audit_mark': 1}) if '+' in answer else None",
        "no answer is executed in this process",
    ),
    "draws": ("return Scored(value=1.0, parts={'luck': random.random()})", "scored again it is the same"),
    "hashes": ("return Scored(value=1.0, parts={'h': float(hash(answer) % 97)})", "scored again it is the same"),
    "pays_junk": ("return Scored(value=1.0 if len(answer) < 30 else 0.0, parts={})", "junk earns nothing"),
    "refuses": ("return Scored(value=0.0, parts={})", "reference answer earns 1"),
    "reads_lists": (
        "return Scored(value=float(problem.answer in answer.split(', ')), parts={})",
        "a list of all answers is not paid",
    ),
    "reads_the_question": (
        "return Scored(value=float(problem.answer in answer), parts={})",
        "the question is not paid",
    ),
    "phones": ("socket.socket().connect_ex(('127.0.0.1', 9))", "scoring opens nothing outside"),
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A project with the verifiers above in its folder of pieces."""
    folder = tmp_path / "pieces/verifier"
    folder.mkdir(parents=True)
    for name, (defect, _) in DEFECTS.items():
        (folder / f"{name}.py").write_text(SOUND.format(name=name, defect=defect))
    (folder / "swallows.py").write_text(
        textwrap.dedent(
            """
            from synth.types import Scored

            def swallows(problem, answer, **args):
                try:
                    assert not args
                    return Scored(value=float(answer == problem.answer), parts={})
                except Exception:
                    return Scored(value=0.0, parts={})
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    import synth.verify

    monkeypatch.setattr(synth.verify, "__path__", list(synth.verify.__path__))
    pieces.open_own()
    yield tmp_path
    for name in (*DEFECTS, "swallows"):
        sys.modules.pop(f"synth.verify.{name}", None)


def problems(verifier, split="train", first=0):
    return [
        Problem.make(
            prompt=f"What is twice {i} and a word w{i} ?", answer=f"w{i}", verifier=verifier, family="f", split=split
        )
        for i in range(first, first + 12)
    ]


@pytest.mark.parametrize(
    ("name", "check"), [(n, c) for n, (_, c) in DEFECTS.items()] + [("swallows", "a grader that breaks does not say 0")]
)
def test_each_planted_defect_is_found_by_its_check(own, name, check):
    findings = env_audit.audit(single(), problems(name), problems(name, "test", 100))
    failing = {f.check for f in findings if f.holds is False}
    assert not failing if check is None else check in failing, findings


def test_what_is_trained_on_must_not_be_tested(own):
    findings = env_audit.audit(single(), problems("sound"), problems("sound", "test", 6))
    (leak,) = [f for f in findings if f.check == "test problems are not trained on"]
    assert leak.holds is False and leak.text.startswith("6 of 12")


@pytest.mark.parametrize(
    "family",
    [
        "countdown",
        "list_sorting",
        "integer_arithmetic",
        "rational_arithmetic",
        "linear_equations",
        "python_functions",
        "text_to_sql",
        "nim_heaps",
        "sudoku",
        "grid_navigation",
    ],
)
def test_shipped_families_pass(family, capsys):
    assert main(["env", "audit", "single", "--family", family, "-n", "12", "--json"]) == 0, capsys.readouterr().out
    findings = json.loads(capsys.readouterr().out)
    assert {f["check"] for f in findings} >= {c for _, c in DEFECTS.values() if c}


def test_what_cannot_be_audited_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["env", "audit", "single"]) == 2
    assert "name a family (--family countdown)" in capsys.readouterr().err
    assert main(["env", "audit", "single", "--family", "countdown", "-n", "0"]) == 2
    assert main(["env", "audit", "singel", "--family", "countdown"]) == 2
    assert "single" in capsys.readouterr().err
    problems_made = [countdown(0, "train", i) for i in range(4)]

    class Never:
        def start(self, problem, tools):
            raise LookupError("no tool 'x' was given")

    by_check = {f.check: f for f in env_audit.audit(Never(), problems_made, [])}
    assert by_check["reference answer wins an episode"].holds is None
    assert by_check["test problems are not trained on"].holds is None


# Environments of other people, as the adapter `file` reads them: a sound one, into which one defect each is planted.
GRADER = """
import random, socket

def problem(seed, split, index):
    n = index % 100 if {counted} else random.Random(seed).randint(100, 99999)
    return {{"prompt": f"Which number is {{n}} ?", "answer": f"n{{n}}", "item": {{"wanted": f"n{{n}}"}}}} | {more}

def score(item, answer):
    {defect}
    return answer == item["wanted"]
"""
PLANTED = {
    "sound": ("pass", None),
    "executes": ("exec(compile(answer, 'answer', 'exec'), {}) if '=' in answer else None", "executed"),
    "evaluates": ("eval(answer, {'espalier_audit_mark': 1}) if '[' in answer else None", "executed"),
    "hashes": ("return (hash(answer) % 97) / 97 if answer != item['wanted'] else 1", "repeats"),
    "pays_junk": ("return len(answer) < 30", "junk"),
    "refuses": ("return 0", "reference"),
    "reads_lists": ("return item['wanted'] in answer.split(', ')", "list"),
    "reads_the_question": ("return item['wanted'][1:] in answer", "question"),
    "phones": ("socket.socket().connect_ex(('127.0.0.1', 9))", "opens"),
    "swallows": ("return answer == item.get('wanted')", "grader"),
    "shares": ("pass", "shared"),
}


def planted(folder, name):
    path = folder / f"{name}.py"
    more = {"shares": '{"split": split}'}.get(name, "{}")
    path.write_text(GRADER.format(defect=PLANTED[name][0], counted=name == "shares", more=more))
    return {"adapter": "file", "path": str(path)}


@pytest.mark.parametrize("name", PLANTED)
def test_each_defect_of_an_environment_of_other_people_is_found_by_its_check(tmp_path, name):
    train, test = env_audit.drawn(planted(tmp_path, name), 12)
    findings = env_audit.audit(single(), train, test)
    failing = [f.name for f in findings if f.holds is False]
    check = PLANTED[name][1]
    assert not failing if check is None else check in failing, findings
    assert {f.name for f in findings} == set(env_audit.NAMES) - {"episode"}


EPISODES = """
import random

class Doors:
    actions = ["left", "right"]

    def __init__(self, item):
        self.way, self.at = item, 0

    def start(self):
        return "left or right?"

    def step(self, text):
        {defect}
        self.at += 1
        if text != self.way[self.at - 1]:
            return "wrong", True, 0.0
        return "on", self.at == len(self.way), float(self.at == len(self.way))

def problem(seed, split, index):
    way = random.Random(seed).choices(Doors.actions, k=6)
    return {{"prompt": "left or right?", "answer": "", "item": way, "root": "".join(way)}}

episode = Doors
"""
MOVES = {
    "sound": ("pass", None),
    "executes": ("eval(text, {'espalier_audit_mark': 1}) if '[' in text else None", "executed"),
    "luck": ("return 'luck', True, hash(text) % 97 / 97", "repeats"),
    "pays": ("return 'well', self.at > 3, 0.2", "junk"),
}


@pytest.mark.parametrize("name", MOVES)
def test_episodes_are_audited_by_playing_them(tmp_path, name):
    path = tmp_path / "doors.py"
    path.write_text(EPISODES.format(defect=MOVES[name][0]))
    findings = env_audit.audit(None, *env_audit.drawn({"adapter": "file", "path": str(path)}, 12))
    failing = [f.name for f in findings if f.holds is False]
    assert not failing if MOVES[name][1] is None else MOVES[name][1] in failing, findings
    assert {f.name: f.holds for f in findings}["reference"] is None


def test_training_is_refused_until_the_finding_is_named(tmp_path):
    train, test = env_audit.drawn(planted(tmp_path, "evaluates"), 12)
    own = problems("exact")
    assert env_audit.gate(own, []) == {}, "an environment of this project has its tests"
    with pytest.raises(UserError, match=r"the environment evaluates fails its audit: .* rl.accept: \[executed\]"):
        env_audit.gate([*own, *train, *test], ["junk"])
    gated = env_audit.gate([*own, *train, *test], ["executed"])
    assert gated["evaluates"]["problems"] == 12 and list(gated["evaluates"]["accepted"]) == ["executed"]
    with pytest.raises(UserError, match="no check of the audit is called 'exected': did you mean 'executed'"):
        env_audit.gate(own, ["exected"])
    sound = env_audit.gate(env_audit.drawn(planted(tmp_path, "sound"), 12)[0], ["executed"])
    assert sound["sound"]["accepted"] == {}


def test_an_adapter_is_audited_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = planted(tmp_path, "evaluates")["path"]
    assert main(["env", "audit", "file", f"path={path}", "-n", "12"]) == 1
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("FINDING")]
    assert line.split()[1] == "executed" and "is no sandbox" in line
    for words, message in (
        (["file", "path"], "write key=value"),
        (["file", "path=nowhere.py"], "there is no file nowhere.py"),
        (["single", "path=x"], "options are for adapters"),
        (["reasoning_gm"], "no environment and no adapter is called 'reasoning_gm': did you mean 'reasoning_gym'"),
        (["file", f"path={path}", "pth=1"], "it has no option 'pth'"),
    ):
        assert main(["env", "audit", *words]) == 2
        assert message in capsys.readouterr().err
