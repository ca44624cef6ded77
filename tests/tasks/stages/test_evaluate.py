"""The stage evaluate: every sample becomes a row, numbers follow from rows, an interrupted run goes on, a blind model
scores less."""

import inspect
import json
import re

import numpy as np
import pandas as pd
import pytest
from sealed import seal

from synth.knowledge.kb import Passage
from synth.scenes.painter import paint
from synth.scenes.screens import pixels
from synth.scenes.trees import laid_out
from synth.types import Demonstration, Message, PreferencePair, Problem, Scored, Unscorable
from tasks.core.errors import UserError
from tasks.evaluation.measure import OUTCOMES, by_problem, measure
from tasks.evaluation.outcome import outcome
from tasks.lab import toy
from tasks.planning.pieces import bind
from tasks.planning.settings import EvaluationSampling
from tasks.runtime.stage import Stage
from tasks.stages import evaluate as module
from tasks.stages.evaluate import evaluate, held_out, resumable, trained_on
from tasks.stages.problems import problems
from tasks.stages.report import metrics as metrics_of_report
from tasks.storage import pictures, tables
from tasks.storage.finished import Finished
from tests.training.rollout.test_endpoint import Server
from training.metrics.paired import paired
from training.metrics.pass_at_k import pass_at_k
from training.model.model import new_model, save_model, train_tokenizer
from training.types import Rollout, Segment

NAMES = ["Norvia", "Zelton", "Karo", "Milbe", "Tasun", "Orrel"]


def make_problem(i, env="search", family="entity_tree", split="test", hops=1):
    return Problem.make(
        prompt=f"What is the capital of {NAMES[i]} ?",
        answer=f"City{NAMES[i]}",
        verifier="exact",
        args={"aliases": []},
        env=env,
        family=family,
        difficulty={"hops": hops} if hops else {},
        split=split,
    )


def drawn_turn(verifier, args, reference, *turns):
    """The last message that is kept of a conversation with a problem of this verifier."""
    problem = Problem.make(prompt="Make it.", answer=reference, verifier=verifier, args=args, family="f", split="test")
    talk = [*problem.prompt, *(Message(role="assistant", content=text) for text in turns)]
    rollout = Rollout(problem=problem, group="g", segments=(), score=Scored(value=1.0), info={"messages": talk})
    return module.row(rollout, 0)["messages"][-1]


@pytest.mark.parametrize(
    "verifier, args, answer, drawing",
    [
        ("painted", {"a": "ant", "b": "cow"}, "A photo: the giant ant and the tiny cow", paint),
        (
            "screen_tree",
            {"widgets": ["red button"]},
            '{"col": [{"button": "red"}]}',
            lambda text: pixels(laid_out(text)),
        ),
    ],
)
def test_what_an_answer_makes_is_kept_with_it(verifier, args, answer, drawing):
    kept = drawn_turn(verifier, args, answer, f"<answer>{answer}</answer>")
    assert kept["pictures"] == [pictures.data_url(drawing(answer))]
    for text in (answer, "<answer></answer>", "<answer>nothing known</answer>"):
        assert "pictures" not in drawn_turn(verifier, args, answer, text), text


def test_a_verifier_that_draws_nothing_keeps_words_alone():
    assert drawn_turn("exact", {}, "4", "<answer>4</answer>") == {"role": "assistant", "content": "<answer>4</answer>"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with six questions, two family problems, passages, and one untrained model in the place of all four."""
    root = tmp_path_factory.mktemp("project")
    questions = [make_problem(i, hops=1 + i % 2) for i in range(6)]
    tables.write(root / "artifacts/questions/problems.parquet", questions, Problem)
    tables.write(
        root / "artifacts/problems/problems.parquet",
        [make_problem(i, "single", f"family{i % 2}", hops=0) for i in range(2)],
        Problem,
    )
    passages = [
        Passage(id=f"p{i}", entity=n, title=n, text=f"The capital of {n} is City{n}.", facts=())
        for i, n in enumerate(NAMES)
    ]
    tables.write(root / "artifacts/kb/passages.parquet", passages, Passage)
    tokenizer = train_tokenizer([p.text for p in passages] + [q.question for q in questions], vocab_size=400)
    model = new_model(
        tokenizer, hidden=16, layers=1, heads=2, kv_heads=1, intermediate=32, max_length=256, init_range=0.05, seed=1
    )
    for stage, folder in (*module.MODELS.values(), ("reward", "model")):
        save_model(model, tokenizer, root / "artifacts" / stage / folder)
    (root / "artifacts/reward/card.json").write_text('{"verdict": "good"}')
    messages = [
        Message(role="user", content="Who teaches ?"),
        Message(role="assistant", content="<answer>Karo</answer>"),
    ]
    tables.write(
        root / "artifacts/demonstrations/demonstrations.parquet",
        [Demonstration.make(problem="p", messages=messages, split="train")],
        Demonstration,
    )
    pair = PreferencePair.make(
        prompt=messages[:1],
        chosen="<answer>Karo</answer>",
        rejected="<answer>Milbe</answer>",
        source="test",
        split="train",
    )
    tables.write(root / "artifacts/clean/pairs.parquet", [pair], PreferencePair)
    seal(root)
    return root


class Oracle:
    """A sampler that searches for the capital and repeats what it read; `blind` says what it knew to be nothing."""

    def __init__(self, renderer, skill):
        self.renderer, self.skill = renderer, skill

    def open(self, prompts, seeds):
        renderer, skill = self.renderer, self.skill

        class Session:
            def __init__(self):
                self.rows, self.seen = list(range(len(prompts))), [renderer.decode(p) for p in prompts]

            def observe(self, rows, new):
                self.rows = list(rows)
                for r, ids in zip(rows, new):
                    self.seen[r] += renderer.decode(ids)

            def generate(self, sampling):
                out = []
                for r in self.rows:
                    name = re.search(r"capital of (\w+)", self.seen[r]).group(1)
                    match = re.search(rf"capital of {name} is (\w+)", self.seen[r])
                    if match or "nothing found" in self.seen[r] or seeds[r] % 4 >= skill:
                        text = f"<answer>{match.group(1) if match else 'no idea'}</answer>"
                    else:
                        text = f"<search>capital of {name}</search>"
                    ids = renderer.turn(text)
                    out.append(Segment(ids=ids, role="model", logp=np.zeros(len(ids), dtype=np.float32), stop="end"))
                return out

        return Session()


def run(root, **changes):
    stage = Stage("evaluate", root=root, deps=["artifacts", "data"])
    pieces = {
        "envs": [bind("env", {"piece": "search"}), bind("env", {"piece": "single"})],
        "metrics": [bind("metric", {"piece": "pass_at_k", "ks": [1, 4]})],
    }
    with stage.running():
        evaluate(
            stage,
            **{
                "samples": 4,
                "blanked_samples": 2,
                "family_samples": 1,
                "sampling": EvaluationSampling(max_turn_tokens=24),
                **pieces,
                **changes,
            },
        )
    return root / "artifacts" / "evaluate"


def test_an_untrained_model_end_to_end(project):
    out = run(project, models=["base", "rl"], against="base")
    frame = pd.read_parquet(out / "scores.parquet")
    assert len(frame) == 2 * (6 * 4 + 2) + 6 * 2
    assert set(frame["outcome"]) <= set(OUTCOMES)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["models"]["base"] == metrics["models"]["rl"], (
        "the same weights and random numbers give the same numbers"
    )
    assert metrics["difference"]["rl - base"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 6, "p": 1.0, "p_holm": 1.0}
    assert set(metrics["hops"]["rl"]) == {"1", "2"} and set(metrics["families"]["rl"]) == {"family0", "family1"}
    first = (out / "scores.parquet").read_bytes()
    assert (run(project, models=["base", "rl"], against="base") / "scores.parquet").read_bytes() == first
    assert json.loads((out / "card.json").read_text())["unscorable"] == 0


def test_what_turns_took_is_recorded_and_is_in_no_output(project, monkeypatch):
    recorded = []
    monkeypatch.setattr(Stage, "episodes", lambda self, path, n, seconds: recorded.append((n, seconds)))
    out = run(project, models=["base"], against="base")
    talks = [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]
    assert not any("seconds" in talk for talk in talks)
    [(n, seconds)] = recorded
    assert n == 48 and set(seconds) == {f"{talk['run']}/{talk['problem']}" for talk in talks}
    for talk in talks:
        took = seconds[f"{talk['run']}/{talk['problem']}"]
        assert len(took) == len(talk["messages"])
        assert [x > 0 for x, m in zip(took, talk["messages"], strict=True) if m["role"] == "assistant"] == [True] * sum(
            m["role"] == "assistant" for m in talk["messages"]
        )


def test_search_is_what_the_scores_come_from(project, monkeypatch):
    skills, player = iter([1, 4]), module.Player  # of sft, then of rl
    monkeypatch.setattr(module, "TorchSampler", lambda model, end_id: next(skills))
    monkeypatch.setattr(
        module, "Player", lambda **kw: player(**kw | {"sampler": Oracle(kw["renderer"], kw["sampler"])})
    )
    out = run(project, models=["sft", "rl"])
    metrics = json.loads((out / "metrics.json").read_text())
    low = 0.025 ** (1 / 6)  # all of six: Clopper and Pearson, where a bootstrap would be certain
    assert metrics["models"]["rl"]["pass@1"] == pytest.approx({"mean": 1.0, "low": low, "high": 1.0, "n": 6})
    assert metrics["models"]["rl"]["calls"]["mean"] == 1.0
    assert 0 < metrics["models"]["sft"]["pass@1"]["mean"] < 0.7
    assert metrics["difference"]["rl - sft"]["low"] > 0
    assert metrics["blanked"]["rl"]["pass@1"]["mean"] == 0.0
    assert metrics["difference"]["rl, search blanked - rl"]["high"] < 0
    assert metrics["outcomes"]["rl"]["right"] == 24
    episodes = [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]
    assert len(episodes) == 2 * (6 + 2) + 6, "the first sample of every problem of every run"
    assert [m["role"] for m in next(e for e in episodes if e["run"] == "rl")["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def rollout(value, **parts):
    group = toy.groups([[value]])[0]
    one = group.rollouts[0]
    return type(one)(
        problem=one.problem,
        group=one.group,
        segments=one.segments,
        score=Scored(value=value, parts=parts),
        info={"calls": 2, "messages": ()},
    )


def test_outcomes():
    episodes = {
        "right": rollout(1.0, answered=1.0),
        "wrong": rollout(0.0, answered=1.0),
        "truncated": rollout(0.0, truncated=1.0),
        "malformed": rollout(0.0, answered=0.0, malformed=1.0),
        "out_of_calls": rollout(0.0, answered=0.0, malformed=0.0),
    }
    for name, one in episodes.items():
        assert outcome(one) == name
    blind = rollout(0.0)
    assert (
        outcome(
            type(blind)(problem=blind.problem, group=blind.group, segments=blind.segments, score=Unscorable(reason="x"))
        )
        == "unscorable"
    )


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    problems, work, played = toy.problems(7), tmp_path / "rl.jsonl", []

    def play(part):
        played.append([p.id for p in part])
        return [rollout(1.0, answered=1.0) for _ in part]

    steps = resumable(Finished(work), problems, 3, play)
    next(steps), next(steps)
    steps.close()
    work.write_text(work.read_text() + '[{"problem": "cut o')
    rest = list(resumable(Finished(work), problems, 3, play))
    assert [len(p) for p in rest] == [3, 3, 1]
    assert played == [[p.id for p in problems[a:b]] for a, b in ((0, 3), (3, 6), (6, 7))], "no part is played twice"
    assert len(work.read_text().splitlines()) == 3


def test_held_out_takes_test_problems_only_and_says_when_there_are_none(tmp_path):
    path = tmp_path / "problems.parquet"
    problems = [make_problem(i, split="test" if i < 3 else "train") for i in range(6)]
    tables.write(path, problems, Problem)
    assert {p.id for p in held_out(path, 10, 0)} == {p.id for p in problems[:3]}
    assert held_out(path, 2, 0) == held_out(path, 3, 0)[:2]
    tables.write(path, problems[3:], Problem)
    with pytest.raises(UserError, match="no problem of the split test"):
        held_out(path, 10, 0)


def test_decoders_are_measured_beside_the_model_at_a_budget(project):
    decoders = [bind("decode", {"piece": "greedy"}), bind("decode", {"piece": "best_of_n", "n": 0})]
    changes = {"models": ["base", "rl"], "against": "base", "samples": 1, "decoders": decoders}
    out = run(project, **changes, decoder_tokens=300)
    metrics = json.loads((out / "metrics.json").read_text())
    assert set(metrics["decoders"]) == {"greedy", "best_of_n (n=0)"}
    cost = {name: m["forward_tokens"]["mean"] for name, m in metrics["decoders"].items()}
    assert 0 < cost["greedy"] < cost["best_of_n (n=0)"] and metrics["decoders"]["greedy"]["pass@1"]["n"] == 6
    frame = pd.read_parquet(out / "scores.parquet")
    mine = frame[frame["run"] == "rl, decoded by greedy"]
    assert len(mine) == 6 and set(mine["model"]) == {"rl"}
    episodes = [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]
    spent = [e["forward_tokens"] for e in episodes if e["run"] == "rl, decoded by best_of_n (n=0)"]
    assert len(spent) == 6 and all(0 < n <= 300 * e["turns"] for n, e in zip(spent, episodes[-6:]))
    with pytest.raises(UserError, match=r"the decoder greedy: a budget of 3 forward tokens has no room"):
        run(project, **changes, decoder_tokens=3)
    with pytest.raises(UserError, match="greedy is listed twice"):
        run(project, **changes | {"decoders": decoders[:1] * 2})


def test_a_decoder_that_refuses_does_so_before_anything_else_is_played(project, monkeypatch):
    played, play = [], module._Players.play
    monkeypatch.setattr(
        module._Players, "play", lambda self, run, part: played.append(run.name) or play(self, run, part)
    )
    decoders = [bind("decode", {"piece": "greedy"})]
    with pytest.raises(UserError, match="has no room for an answer"):
        run(project, models=["base", "rl"], against="base", samples=1, decoders=decoders, decoder_tokens=3)
    assert played == ["rl, decoded by greedy"]


def test_merges_are_measured_with_what_they_gained_and_lost(project):
    merges = [bind("merge", {"piece": p}) for p in ("average", "activation_informed")]
    changes = {"models": ["sft", "prefer", "rl"], "against": "sft", "samples": 1, "merges": merges}
    metrics = json.loads((run(project, **changes) / "metrics.json").read_text())
    same = metrics["merges"]["average"]
    assert same["pass@1"] == metrics["models"]["sft"]["pass@1"], "the mean of one model with itself"
    over = same["over rl"]
    assert over["gained"] == over["lost"] == 0 and over["families"] == {"entity_tree": {"gained": 0, "lost": 0}}
    assert set(metrics["merges"]) == {"average", "activation_informed"} and "over sft" in same
    with pytest.raises(UserError, match="no model of evaluate.models was trained from sft"):
        run(project, **changes | {"models": ["base", "sft"]})
    with pytest.raises(UserError, match="evaluate.merge_base is 'rl'"):
        run(project, **changes, merge_base="rl")


def test_too_many_unscorable_rollouts_stop_the_run(project, monkeypatch):
    lost = {"score": None, "reason": "timeout", "outcome": "unscorable"}
    monkeypatch.setattr(module, "row", lambda r, i, real=module.row: real(r, i) | (lost if i else {}))
    with pytest.raises(ValueError, match="could not be scored.*timeout"):
        run(project, models=["base"], against="base")
    with pytest.raises(UserError, match="no model 'rk'"):
        run(project, models=["rk"])


def test_pass_at_k_is_the_unbiased_estimator():
    # 3 of 8 right: pass@1 = 3/8; pass@2 = 1 - (5*4)/(8*7) = 36/56; pass@8 = 1. A second problem with none right halves
    # each.
    shares = pass_at_k([[1, 0, 0, 1, 0, 0, 1, 0], [0] * 8], ks=(1, 2, 8, 9))
    assert [shares[f"pass@{k}"]["mean"] for k in (1, 2, 8)] == pytest.approx([3 / 16, 36 / 112, 0.5])
    assert "pass@9" not in shares
    assert pass_at_k([[1, float("nan"), 0]], ks=(1, 3)).keys() == {"pass@1"}


def test_pairing_narrows_the_interval():
    rng = np.random.default_rng(0)
    hard = rng.random(60)
    a, b = [[h] * 4 for h in hard], [[h - 0.05 + 0.02 * (i % 2)] * 4 for i, h in enumerate(hard)]
    difference = paired(a, b)["difference"]
    assert difference["low"] > 0 and difference["mean"] == pytest.approx(0.04)
    with pytest.raises(ValueError, match="same problems"):
        paired(a, b[:-1])


def test_measure_leaves_out_samples_without_a_score():
    columns = ["run", "problem", "hops", "family", "score", "calls", "tokens", "outcome"]
    rows = [
        ["rl", "p", 1, "f", 1.0, 1, 5, "right"],
        ["rl", "p", 1, "f", np.nan, 1, 5, "unscorable"],
        ["rl, families", "q", 0, "g", 0.0, 0, 5, "wrong"],
        ["rl, search blanked", "p", 1, "f", 0.0, 1, 5, "wrong"],
    ]
    frame = pd.DataFrame(rows, columns=columns)
    metrics = measure(frame, ["rl"], "sft", [bind("metric", {"piece": "pass_at_k", "ks": [1]})])
    assert metrics["models"]["rl"]["pass@1"]["mean"] == 1.0
    assert len(by_problem(frame[frame["run"] == "rl"])[0]) == 2


def test_a_set_of_ones_own_is_asked_and_one_that_was_trained_on_is_refused(project, monkeypatch):
    file = project / "data/mine.jsonl"
    file.parent.mkdir(exist_ok=True)
    rows = [{"question": "Who teaches ?", "answer": "Karo"}, {"question": "Where is Tasun ?", "answer": "Orrel"}]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    own = {
        "sets": [{"name": "mine", "path": "data/mine.jsonl", "samples": 2, "ask": ""}],
        "models": ["base", "rl"],
        "against": "base",
    }
    with pytest.raises(
        UserError,
        match="1 evaluation rows are also in the training data .*'Who teaches .' is 100% of artifacts/demonstrations",
    ):
        run(project, **own)
    metrics = json.loads((run(project, **own, contamination="drop") / "metrics.json").read_text())
    assert metrics["sets"]["mine"]["rl"]["pass@1"]["n"] == 1 and "rl - base, mine" in metrics["difference"]
    card = json.loads((project / "artifacts/evaluate/card.json").read_text())
    assert card["contamination"] == {"gate": "drop", "dropped": 1} and card["sets"]["mine"]["problems"] == 2
    file.write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(UserError, match="every problem of 'base, mine' was trained on"):
        run(project, **own, contamination="drop")


def test_a_short_question_of_ones_own_that_rl_learns_from_is_found(tmp_path):
    """The problem asks for the answer in its own words after the question; the set asks the bare question."""
    (tmp_path / "data").mkdir()
    rows = [{"question": f"What is {i} plus {i}?", "answer": i + i} for i in range(20)]
    (tmp_path / "data/asked.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    stage = Stage("problems", plan={"params": {}, "seed": 0}, root=tmp_path)
    with stage.running():
        problems(stage, families=[], files=["data/asked.jsonl"])
    reader = Stage("evaluate", plan={"params": {}, "seed": 0}, root=tmp_path, deps=["artifacts/problems"])
    held = {"mine": [(str(i), r["question"]) for i, r in enumerate(rows)]}
    train = {
        p.lineage["question"] for p in tables.read(stage.target / "problems.parquet", Problem) if p.split == "train"
    }
    assert 0 < len(train) < 20
    assert trained_on(reader, held, refuse=False) == {i for i, q in held["mine"] if q in train}


def test_sets_that_are_not_played_are_scored_gated_and_shown(project):
    """Choices and a task of the harness: one item of either stands in the demonstrations."""
    (project / "data/tasks").mkdir(parents=True, exist_ok=True)
    rows = [
        {"question": "Who teaches ?", "choices": ["Karo", "Milbe"], "answer": 0},
        {"question": "Where is Tasun ?", "choices": ["Orrel", "Zelton"], "answer": 1},
    ]
    file = project / "data/choices.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    (project / "data/tasks/where.yaml").write_text(
        "task: where\noutput_type: multiple_choice\ndoc_to_text: '{{question}}'\ndoc_to_target: answer\n"
        "doc_to_choice: choices\nmetric_list: [{metric: acc}]\ndataset_path: json\ntest_split: test\n"
        f"dataset_kwargs: {{data_files: {{test: {file}}}}}\n"
    )
    pair = {"prompt": "What is Karo ?", "chosen": "Karo", "rejected": "Milbe", "subset": "hep-go"}
    (project / "data/pairs.jsonl").write_text(json.dumps(pair) + "\n")
    own = {
        "sets": [
            {"name": "picked", "layout": "choices", "path": "data/choices.jsonl"},
            {"name": "harness", "task": "where", "tasks": "data/tasks"},
            {"name": "pairs", "layout": "rewardbench", "path": "data/pairs.jsonl"},
        ],
        "models": ["base", "rl"],
        "against": "base",
        "samples": 1,
    }
    with pytest.raises(UserError, match="2 evaluation rows are also in the training data .*'Who teaches .' is 100%"):
        run(project, **own)
    out = run(project, **own, contamination="drop")
    metrics = json.loads((out / "metrics.json").read_text())
    assert (
        set(metrics["sets"]["picked"]["rl"]) == {"acc", "acc_norm"} and metrics["sets"]["picked"]["rl"]["acc"]["n"] == 1
    )
    assert set(metrics["sets"]["harness"]["base"]) == {"acc"}
    gap = metrics["difference"]["rl - base, harness, acc"]
    assert gap["mean"] == 0.0 and gap["p_holm"] == 1.0, "all four models are one"
    lines = [json.loads(line) for line in (out / "sets.jsonl").read_text().splitlines()]
    assert [(r["model"], r["set"]) for r in lines] == [(m, s) for m in ("base", "rl") for s in ("picked", "harness")]
    assert json.loads((out / "card.json").read_text())["sets"]["harness"]["items"] == 2
    page = metrics_of_report(metrics)
    assert set(metrics["judging"]["pairs"]) == {"hep-go", "Reasoning", "score"} and "Test set pairs" in page
    assert "Test set picked" in page and "acc_norm" in page and "Test set harness" in page
    file.write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(UserError, match="every item of the set 'picked' was trained on"):
        run(project, **own, contamination="drop")


def test_metrics_read_columns_of_samples(project):
    metrics = [
        bind("metric", {"piece": p})
        for p in ("pass_at_k", "majority_at_k", "calibration", "format_and_refusal", "diversity")
    ]
    numbers = json.loads((run(project, models=["rl"], against="rl", metrics=metrics) / "metrics.json").read_text())
    assert {"pass@1", "ece", "format", "across"} <= set(numbers["models"]["rl"]) and "ece" not in numbers["hops"]["rl"][
        "1"
    ]
    frame = pd.read_parquet(project / "artifacts/evaluate/scores.parquet")
    assert frame["confidence"].between(0, 1).all() and (frame["text"].str.len() > 0).any()
    assert not frame.duplicated(["run", "problem", "sample"]).any() and {
        "temperature",
        "top_p",
        "max_turn_tokens",
    } <= set(frame)
    numbers = measure(frame, ["rl"], "rl", metrics)
    assert numbers == json.loads((project / "artifacts/evaluate/metrics.json").read_text()), (
        "offline is what the loop gave"
    )

    def odd(scored, moods):
        return {}

    with pytest.raises(UserError, match="reads 'moods', which no row holds"):
        run(project, models=["rl"], metrics=[odd])


class Mute(Oracle):
    """A sampler that ends every turn at once."""

    def open(self, prompts, seeds):
        session, renderer = super().open(prompts, seeds), self.renderer

        def generate(sampling):
            ids = renderer.turn("")
            return [
                Segment(ids=ids, role="model", logp=np.zeros(len(ids), dtype=np.float32), stop="end")
                for _ in session.rows
            ]

        session.generate = generate
        return session


def test_a_model_that_emits_nothing_is_measured(project, monkeypatch):
    player = module.Player
    monkeypatch.setattr(module, "TorchSampler", lambda model, end_id: 0)
    monkeypatch.setattr(module, "Player", lambda **kw: player(**kw | {"sampler": Mute(kw["renderer"], 0)}))
    names = (
        "pass_at_k",
        "majority_at_k",
        "answer_overlap",
        "cost_per_right",
        "calibration",
        "diversity",
        "self_bleu",
        "format_and_refusal",
        "length_bias",
    )
    out = run(project, models=["base", "rl"], against="base", metrics=[bind("metric", {"piece": p}) for p in names])
    metrics = json.loads((out / "metrics.json").read_text())["models"]["rl"]
    assert metrics["pass@1"]["mean"] == 0.0 and metrics["empty"]["mean"] == 1.0 and metrics["format"]["mean"] == 0.0
    assert metrics["tokens_per_right"]["mean"] is None, "nothing is right, so there is no price; and JSON has no NaN"
    assert metrics["ece"]["mean"] == 1.0, "it is sure, and never right"


def test_an_empty_set_is_refused(project):
    (project / "data").mkdir(exist_ok=True)
    (project / "data/empty.jsonl").write_text("")
    with pytest.raises(UserError, match="no row of data/empty.jsonl is a problem .*has no rows"):
        run(project, sets=[{"name": "none", "path": "data/empty.jsonl"}])


def test_a_reward_model_judges_every_rollout_where_a_metric_asks_for_it(project):
    metrics = [
        bind("metric", {"piece": "pass_at_k", "ks": [1]}),
        bind("metric", {"piece": "best_of_n", "ns": [2, 4]}),
    ]
    measures = json.loads((run(project, models=["rl"], against="rl", metrics=metrics) / "metrics.json").read_text())[
        "models"
    ]["rl"]
    assert {"best_of@2", "best_of@4", "bon_gap@4"} <= set(measures) and measures["best_of@2"]["n"] == 6
    rewards = pd.read_parquet(project / "artifacts/evaluate/scores.parquet")["reward"]
    assert rewards.notna().all() and rewards.nunique() > 3
    config = project / "artifacts/reward/model/config.json"
    before = config.read_text()
    config.write_text(before.replace("ForCausalLM", "ForSequenceClassification"))
    seal(project)
    with pytest.raises(UserError, match="a reward model with a head"):
        run(project, models=["rl"], against="rl", metrics=metrics)
    config.write_text(before)
    seal(project)


def test_features_of_prompts_where_a_metric_reads_them(project):
    metrics = [
        bind("metric", {"piece": "pass_at_k", "ks": [1]}),
        bind("metric", {"piece": "geometry", "first": 1}),
    ]
    measures = json.loads(
        (run(project, models=["base", "rl"], against="rl", metrics=metrics) / "metrics.json").read_text()
    )["models"]
    assert measures["rl"] == measures["base"], "the same weights see the same"
    assert 1 < measures["rl"]["rank_me"]["mean"] <= 5 and measures["rl"]["rank_me"]["n"] == 6, (
        "six prompts span at most five directions"
    )
    assert "features" not in pd.read_parquet(project / "artifacts/evaluate/scores.parquet")


def test_the_benchmark_times_every_metric_that_is_asked_of_an_evaluation():
    """A toy table of what the stage keeps of samples goes through the benchmark's own functions."""
    from benchmarks.evaluation import ITEMS, MORE, covered, numbers

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        [
            {
                "problem": f"p{i}",
                "hops": 1 + i % 2,
                "score": float(rng.random() < 0.5),
                "said": "b c"[: 1 + 2 * (s % 2)],
                "reference": "b c",
                "text": f"it is {s} b",
                "confidence": rng.random(),
                "calls": 1,
                "tokens": 3 + s,
                "outcome": "right",
                "reward": rng.random(),
                "features": list(rng.random(3)) if s == 0 else None,
            }
            for i in range(12)
            for s in range(8)
        ]
    )
    metrics = [bind("metric", m) for m in [*inspect.signature(evaluate).parameters["metrics"].default, *MORE]]
    measures = numbers(metrics, frame)
    assert covered(measures).keys() == ITEMS.keys() and len(measures["difference"]) == 3
    assert (
        all(p["p_holm"] >= p["p"] for p in measures["difference"])
        and {"1->1", "1->2", "2->1", "2->2"} <= measures.keys()
    )
    with pytest.raises(ValueError, match=r"not measured: rank_me \(geometry of representations\)"):
        covered({k: v for k, v in measures.items() if k != "rank_me"})


@pytest.fixture
def judge():
    """An endpoint whose model reads the reference: it prefers the answer that holds it, unless told otherwise."""
    stub = Server(lambda body: stub.says(body["messages"][0]["content"]))

    def fair(shown):
        parts = dict(re.findall(r"<<< (.+?)\n(.*?)\n>>>", shown, re.S))
        first, second = (parts["Reference"] in parts[f"Answer {i}"] for i in (1, 2))
        return f"<verdict>{'tie' if first == second else 1 if first else 2}</verdict>"

    stub.says = stub.fair = fair
    yield stub
    stub.http.shutdown()
    stub.http.server_close()


def test_a_judge_compares_what_two_models_answered(project, judge, monkeypatch):
    names = iter(range(10**6))  # every third answer holds all names, and so the right one
    monkeypatch.setattr(
        module, "answered", lambda messages: " ".join(f"City{n}" for n in NAMES) if next(names) % 3 == 0 else "nobody"
    )
    out = run(project, models=["base", "rl"], against="base", judge={"url": judge.url, "model": "fair"})
    comparison = json.loads((out / "metrics.json").read_text())["judged"]["rl over base"]
    assert (
        comparison["consistent"]["mean"] == 1.0
        and comparison["unscorable"]["mean"] == 0.0
        and comparison["win_rate"]["n"] >= 6
    )
    rows = [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]
    assert len(rows) == comparison["win_rate"]["n"] and {r["pair"] for r in rows} == {"rl over base"}
    wins = [{"first": 1.0, "tie": 0.5, "second": 0.0}[r["winner"]] for r in rows]
    assert comparison["win_rate"]["mean"] == pytest.approx(sum(wins) / len(wins)) and len(set(wins)) > 1
    card = json.loads((out / "card.json").read_text())["judge"]
    assert card["attacks"] > 0 and card["requests"] == len(judge.bodies) and card["model"] == "fair"


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (lambda shown: "<verdict>1</verdict>", "cannot be trusted"),
        (lambda shown: "I like both.", "it gives no verdict|cannot be trusted"),
    ],
)
def test_a_judge_that_always_says_a_is_refused_before_anything_is_played(project, judge, monkeypatch, says, words):
    judge.says = says
    monkeypatch.setattr(module, "Player", None)
    with pytest.raises(UserError, match=words):
        run(project, judge={"url": judge.url, "model": f"biased {words}"})


def test_a_judge_is_configured_or_refused(project):
    with pytest.raises(UserError, match="unknown key 'modle': did you mean 'model'"):
        run(project, judge={"url": "http://127.0.0.1:9/v1", "modle": "x"})
    with pytest.raises(UserError, match="evaluate.judge: url is missing"):
        run(project, judge={"model": "x"})
    with pytest.raises(UserError, match="budget of 3 calls"):
        run(project, judge={"url": "http://127.0.0.1:9/v1", "model": "x", "calls": 3})
