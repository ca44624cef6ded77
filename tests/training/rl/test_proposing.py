"""A proposer that learns: proposals are certified before they are attempted, scored by the solver, and both learn in
one list of rounds."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny

from synth.selfplay.loop import View, cells
from synth.selfplay.spec import certify
from synth.types import Problem, Sampling, Scored, Unscorable, split_of
from tasks.planning.pieces import bind
from tasks.problems import selfplay as loop, proposing, trained
from training.env.propose import propose
from training.env.single import single
from training.model.model import save_model
from training.rl.proposer import Pool, Proposing
from training.rollout.play import Player

FAMILIES = loop.registry([bind("family", {"piece": n}) for n in ("list_sorting", "integer_arithmetic")])


def player(say):
    source = tiny.Scripted(say)
    return Player(
        sampler=source,
        renderer=source.renderer,
        envs={"propose": propose(), "single": single()},
        sampling=Sampling(max_tokens=80),
    )


def spec(draw, level=1):
    return f'<answer>{{"family": "list_sorting", "level": {level}, "draw": {draw}}}</answer>'


def answers(seen, seed):
    """Sorts ascending, half of the time."""
    numbers = [int(n) for n in seen.partition("ascending:")[2].split("<")[0].split()]
    return f"<answer>{' '.join(map(str, sorted(numbers)))}</answer>" if seed % 2 else "<answer>1 2</answer>"


def play(proposals, samples=1, solve=answers):
    texts = iter(proposals)
    pool = Pool()
    proposer = Proposing(
        player=player(lambda seen, seed: next(texts)),
        solver=player(solve),
        pool=pool,
        attempts=16,
        certify=lambda text: certify(text, FAMILIES, 0),
    )
    return proposer.play([proposing.context("list_sorting")], len(proposals), "seed")[0], pool


def test_proposals_are_scored_by_the_solver_or_by_why_they_are_none():
    group, pool = play([spec(1), spec(1), "<answer>{}</answer>", "no idea", spec(2, level=99)])
    first, again, broken, silent, level = (r.score for r in group.rollouts)
    assert 0.1 < first.value < 0.9 and first.parts == {"certified": 1.0}
    assert again == Scored(value=0.0, parts={"duplicate": 1.0})
    assert all(s == Scored(value=0.0, parts={"spec_invalid": 1.0}) for s in (broken, silent, level))
    assert len(pool.problems) == 1 and split_of(pool.problems[0].lineage["root"]) == "train"
    paid = bind("reward", {"piece": "bell"})([group], [group.rewards], {}, np.random.default_rng(0))[0]
    assert paid[0] > 0.1 and list(paid[1:]) == [-0.5, -1.0, -1.0, -1.0]


def test_what_nobody_could_score_is_no_zero(monkeypatch):
    monkeypatch.setattr("training.env.single.verify", lambda problem, answer: Unscorable(reason="timeout: 2 s"))
    group, _ = play([spec(1)])
    assert isinstance(group.rollouts[0].score, Unscorable)


def test_a_pool_is_a_part_of_the_checkpoint():
    _, pool = play([spec(1), spec(2)])
    other, held = Pool(), []
    other.problems = held
    other.load_state(json.loads(json.dumps(pool.state())))
    assert other.problems == pool.problems and other.problems is held, "the solver's source keeps the same list"
    assert not other.add(pool.problems[0])


@pytest.fixture
def model(tmp_path):
    save_model(tiny.build(), tiny.tokenizer(), tmp_path / "model")
    return str(tmp_path / "model")


@pytest.mark.parametrize("lora", [0, 2])
def test_solver_and_proposer_learn_in_one_list_of_rounds_and_go_on_after_a_kill(tmp_path, model, monkeypatch, lora):
    params = {
        "families": [bind("family", {"piece": "list_sorting"})],
        "pay": bind("reward", {"piece": "bell"}),
        "attempts": 2,
    }
    sizes = {
        "model": model,
        "seed": 1,
        "rounds": 2,
        "imitate": 2,
        "solve": 1,
        "propose_steps": 1,
        "prompts": 2,
        "samples": 2,
        "max_turn_tokens": 12,
        "checkpoint_every": 1,
        "lora": lora,
    }
    whole = proposing.learn(tmp_path / "whole", params, **sizes)
    card = json.loads((whole / "card.json").read_text())
    assert [line["round"] for line in card["told"]] == ["imitate", "solve 1", "propose 1", "solve 2", "propose 2"]
    assert {p.name for p in whole.iterdir()} >= {"solver", "proposer", "problems.parquet", "curve.csv"}
    assert (whole / "solver" / "model.safetensors").read_bytes() != (
        whole / "proposer" / "model.safetensors"
    ).read_bytes()

    class Killed(Exception):
        pass

    passed = []

    def dying(name):
        passed.append(name)
        if passed.count("train.step") == 4:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("tasks.runtime.train_loop.fault", dying)
        with pytest.raises(Killed):
            proposing.learn(tmp_path / "broken", params, **sizes)
    again = proposing.learn(tmp_path / "broken", params, **sizes)
    for name in ("curve.csv", "problems.parquet", "solver/model.safetensors", "proposer/model.safetensors"):
        assert (again / name).read_bytes() == (whole / name).read_bytes(), name


def test_out_says_where_solver_and_proposer_that_learn_go(tmp_path, model, capsys, monkeypatch):
    from flows.cli import main

    learn, room = proposing.learn, tmp_path / "project"
    room.mkdir()
    sizes = {"imitate": 1, "solve": 1, "propose_steps": 1, "prompts": 1, "samples": 2, "max_turn_tokens": 8}
    monkeypatch.setattr(proposing, "learn", lambda *args, **given: learn(*args, **given, **sizes))
    (room / "params.yaml").write_text("recipe: socratic-zero\n")
    (room / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(room)
    (room / "full").mkdir()
    (room / "full" / "notes.txt").write_text("mine")
    words = ["selfplay", "--model", model, "--learn", "1", "--set", "problems.attempts=2", "--out"]
    assert main([*words, "full"]) == 2 and "full holds something else" in capsys.readouterr().err
    assert [p.name for p in (room / "full").iterdir()] == ["notes.txt"]
    for out in ("mine", "mine", tmp_path / "outside"):  # the second replaces the first
        assert main([*words, str(out)]) == 0
        assert {"solver", "proposer", "problems.parquet", "card.json"} <= {p.name for p in (room / out).iterdir()}
        assert str(out) in capsys.readouterr().out
        assert str(out) in (room / out / "README.md").read_text()
    assert not (room / "artifacts").exists()


def test_a_trained_model_proposes_in_the_loop(tmp_path, model, capsys, monkeypatch):
    from flows.cli import main

    (tmp_path / "params.yaml").write_text("recipe: socratic-zero\n")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(tmp_path)
    rounds = [
        "--set",
        "problems.rounds=1",
        "--set",
        "problems.proposals=4",
        "--set",
        "problems.held=1",
        "--set",
        "problems.attempts=2",
    ]
    assert main(["selfplay", "--proposer", model, *rounds]) == 0
    output = capsys.readouterr().out
    assert "0 of 4" in output and "spec_invalid 4" in output and "stopped: invalid" in output, (
        "a model that knows nothing of specs is contained"
    )
    proposer = trained.ModelProposer(model)
    monkeypatch.setattr(proposer, "player", player(lambda seen, seed: spec(5)))
    view = View(wanted=cells(FAMILIES, 0)[:2], cells=(), families=FAMILIES)
    assert [certify(t, FAMILIES, 0).family for t in proposer(view, np.random.default_rng(0), 2)] == ["list_sorting"] * 2


def test_imitation_says_specs_that_are_certified():
    source = tiny.Scripted(lambda seen, seed: "")
    batches, _ = proposing.imitation(cells(FAMILIES, 0), source.renderer, 0, rows=8)(0)
    text = source.renderer.decode(batches[0].ids.numpy())
    specs = [t.partition("</answer>")[0] for t in text.split("<answer>")[1:]]
    assert len(specs) == 8 and all(isinstance(certify(s, FAMILIES, 0), Problem) for s in specs)
