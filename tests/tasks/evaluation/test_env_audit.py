"""The audit of a reward finds each planted defect by its own check, and passes graders that are sound."""

import json
import sys
import textwrap

import pytest

from flows.cli import main
from synth.families.countdown import countdown
from synth.types import Problem
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
    "executes": ("exec(compile(answer, 'answer', 'exec'), {}) if '=' in answer else None", "no answer is executed in this process"),
    "evaluates": ("eval(answer, {'espalier_audit_mark': 1}) if '+' in answer else None", "no answer is executed in this process"),
    "draws": ("return Scored(value=1.0, parts={'luck': random.random()})", "scored again it is the same"),
    "hashes": ("return Scored(value=1.0, parts={'h': float(hash(answer) % 97)})", "scored again it is the same"),
    "pays_junk": ("return Scored(value=1.0 if len(answer) < 30 else 0.0, parts={})", "junk earns nothing"),
    "refuses": ("return Scored(value=0.0, parts={})", "reference answer earns 1"),
    "reads_lists": ("return Scored(value=float(problem.answer in answer.split(', ')), parts={})", "a list of all answers is not paid"),
    "reads_the_question": ("return Scored(value=float(problem.answer in answer), parts={})", "the question is not paid"),
    "phones": ("socket.socket().connect_ex(('127.0.0.1', 9))", "scoring opens nothing outside"),
}  # fmt: skip


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
    found = env_audit.audit(single(), problems(name), problems(name, "test", 100))
    failing = {f.check for f in found if f.holds is False}
    assert not failing if check is None else check in failing, found


def test_what_is_trained_on_must_not_be_tested(own):
    found = env_audit.audit(single(), problems("sound"), problems("sound", "test", 6))
    (leak,) = [f for f in found if f.check == "test problems are not trained on"]
    assert leak.holds is False and leak.text.startswith("6 of 12")


@pytest.mark.parametrize(
    "family",
    ["countdown", "list_sorting", "integer_arithmetic", "rational_arithmetic", "linear_equations", "python_functions",
     "text_to_sql", "nim_heaps", "sudoku", "grid_navigation"],
)  # fmt: skip
def test_shipped_families_pass(family, capsys):
    assert main(["env", "audit", "single", "--family", family, "-n", "12", "--json"]) == 0, capsys.readouterr().out
    found = json.loads(capsys.readouterr().out)
    assert {f["check"] for f in found} >= {c for _, c in DEFECTS.values() if c}


def test_what_cannot_be_audited_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["env", "audit", "single"]) == 2
    assert "name a family (--family countdown)" in capsys.readouterr().err
    assert main(["env", "audit", "single", "--family", "countdown", "-n", "0"]) == 2
    assert main(["env", "audit", "singel", "--family", "countdown"]) == 2
    assert "single" in capsys.readouterr().err
    made = [countdown(0, "train", i) for i in range(4)]

    class Never:
        def start(self, problem, tools):
            raise LookupError("no tool 'x' was given")

    found = {f.check: f for f in env_audit.audit(Never(), made, [])}
    assert found["reference answer wins an episode"].holds is None
    assert found["test problems are not trained on"].holds is None
