"""Test sets that are not played: choices by log-probability, and tasks of lm-evaluation-harness, against transformers and
the harness's own model."""

import json

import numpy as np
import pytest
import tiny
import torch

from synth.testsets.layouts.choices import choices
from synth.testsets.layouts.inspect import inspect
from synth.types import Scored
from synth.verify import verify
from tasks.core.errors import UserError
from tasks.evaluation.benchmarks import choice_ids, chosen, load_benchmark, summarised
from tasks.evaluation.scored_set import Player
from tasks.runtime.stage import Stage
from training.learner.continuations import continuation_logp
from training.model.attention import NAME
from training.model.model import load_model, save_model
from training.model.render import Renderer

DOCS = [
    {
        "question": f"What is the capital of {'Norvia Zelton Karo Solve'.split()[i % 4]} {i} ?",
        "choices": c,
        "answer": i % 3,
    }
    for i, c in enumerate([["Zelton", "9 8 7", "a long one of many words"], ["58", "capital", "Sort"]] * 100)
]
TASKS = {
    "tiny_choice": """
task: tiny_choice
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: answer
doc_to_choice: choices
num_fewshot: 2
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "tiny_words": """
task: tiny_words
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[0]}}"
generation_kwargs: {until: ["capital"], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match}]
""",
    "tiny_text": """
task: tiny_text
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false}]
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    save_model(tiny.build(), tiny.tokenizer(), root / "model")
    (root / "data/tasks").mkdir(parents=True)
    rows = root / "data/docs.jsonl"
    rows.write_text("".join(json.dumps(d) + "\n" for d in DOCS))
    data = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {rows}}}}}\ntest_split: test\n"
    for name, text in TASKS.items():
        (root / f"data/tasks/{name}.yaml").write_text(text + data)
    return root


@pytest.fixture(scope="module")
def player(folder):
    model, tokenizer = load_model(folder / "model")
    return Player(model, Renderer(tokenizer))


def load(root, **spec):
    return load_benchmark(Stage("evaluate", root=root, deps=["data"]), spec, 0)


def test_log_probs_of_texts_are_those_of_transformers(player):
    requests = [
        (a.tolist(), b.tolist()) for a, b in zip(tiny.ids(5, 9, 9, 3), tiny.ids(2, 4, 1, 3, seed=1), strict=True)
    ]
    requests += [(requests[1][0], [7, 8])]
    scored = continuation_logp(player.model, requests, tokens_per_pass=20)
    player.model.set_attn_implementation("sdpa")
    for (before, ids), (total, greedy) in zip(requests, scored, strict=True):
        with torch.no_grad():
            logits = player.model(input_ids=torch.tensor([before + ids]), use_cache=False).logits[0]
        logp = torch.log_softmax(logits[len(before) - 1 : -1].double(), -1)
        assert total == pytest.approx(float(logp.gather(1, torch.tensor(ids)[:, None]).sum()), abs=1e-4)
        assert greedy == bool((logp.argmax(-1) == torch.tensor(ids)).all())
    player.model.set_attn_implementation(NAME)
    likeliest = int(logits[len(before) - 1].argmax())
    assert continuation_logp(player.model, [(before, [likeliest])])[0][1]


def test_a_beginning_that_is_too_long_loses_its_first_tokens(player):
    (before,), (ids,) = tiny.ids(30), tiny.ids(2, seed=1)
    ((cut, _),) = continuation_logp(player.model, [(before, ids)], longest=10)
    assert cut == pytest.approx(continuation_logp(player.model, [(before[-9:], ids)])[0][0], abs=1e-5)
    assert cut != pytest.approx(continuation_logp(player.model, [(before, ids)])[0][0], abs=1e-5)
    for wrong, message in (
        ([([], ids)], "0 tokens before"),
        ([(before, list(range(11)))], "11 tokens, more than the 10"),
    ):
        with pytest.raises(ValueError, match=message):
            continuation_logp(player.model, wrong, longest=10)


def test_the_layouts_of_choices():
    arc = {"question": "Why?", "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]}, "answerKey": "3"}
    assert (choices(arc, 0).lineage["gold"], choices(arc, 0).answer) == (2, "c")
    assert choices({"ctx": "He", "endings": ["sits", "runs"], "label": "1"}, 0).lineage["gold"] == 1
    assert (
        choices({"q": "x", "of": ["u", "v"], "a": "v"}, 0, question="q", options="of", answer="a").lineage["gold"] == 1
    )
    mmlu = choices({"question": " Why? ", "choices": ["3", "2"], "answer": 0}, 0)
    assert mmlu.lineage["begin"] == "Question: Why?\nAnswer:" and mmlu.answer == "3"
    for row, message in (
        ({"question": "Why?", "choices": ["a"], "answer": 0}, "few_choices"),
        ({"question": "Why?", "choices": ["a", "b"], "answer": 2}, "wrong_answer: 2 names 0 of the 2"),
        ({"question": "Why?", "choices": ["a", "a"], "answer": "a"}, "names 2 of the 2"),
        ({"question": "Why?", "choices": ["a", "b"], "answer": True}, "wrong_answer"),
    ):
        with pytest.raises(ValueError, match=message):
            choices(row, 0)


def test_the_samples_of_inspect():
    letter = inspect({"input": "Which?", "choices": ["one", "two"], "target": "B", "id": 3}, 0)
    assert letter.question.startswith("Which?\n\nA) one\nB) two\n") and letter.answer == "B"
    several = inspect({"input": [{"role": "user", "content": "Who?"}], "target": ["Bob", "Rob"]}, 0)
    score = verify(several, "rob")
    assert isinstance(score, Scored) and score.value == 1.0
    for row, message in (
        ({"input": "Which?", "choices": ["one"], "target": "B"}, "wrong_target"),
        ({"input": "Which?"}, "no target"),
        ({"input": "Do it", "target": "x", "sandbox": "docker"}, "needs_sandbox"),
    ):
        with pytest.raises(ValueError, match=message):
            inspect(row, 0)


def test_the_sum_and_the_sum_per_character_choose():
    row = choices({"question": "x", "choices": ["ab", "abcdefgh"], "answer": 1}, 0)
    assert chosen(row, np.array([-2.0, -4.0])) == {"acc": 0.0, "acc_norm": 1.0}
    assert chosen(row, np.array([-2.0, -9.0])) == {"acc": 0.0, "acc_norm": 0.0}


def standalone(folder, task, **more):
    """What lm-evaluation-harness gives for the same folder without us, item by item."""
    from lm_eval import evaluator
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    lm = HFLM(pretrained=str(folder / "model"), device="cpu", dtype="float32", batch_size=4)
    tasks = TaskManager(include_path=str(folder / "data/tasks"), include_defaults=False).load([task])
    for one in tasks["tasks"].values():
        one.set_fewshot_seed(seed=1234)
    outcome = evaluator.evaluate(lm, tasks, bootstrap_iters=0, **more)
    return {f"{task}:{s['doc_id']}": s for s in outcome["samples"][task]}, outcome["results"][task]


@pytest.mark.parametrize("task, chat", [("tiny_choice", False), ("tiny_choice", True), ("tiny_words", False)])
def test_every_item_is_scored_as_the_harness_scores_it_alone(folder, player, task, chat):
    mine = load(folder, name="mine", task=task, tasks="data/tasks", chat=chat)
    rows = mine.score(player, [i for i, _ in mine.texts])
    theirs, _ = standalone(folder, task, apply_chat_template=chat)
    assert len(rows) == len(DOCS) == len(theirs)
    for row in rows:
        metrics = theirs[row["item"]]["metrics"]
        assert {m: row[m] for m in metrics} == {m: theirs[row["item"]][m] for m in metrics}
    if task == "tiny_choice":
        assert {r["acc"] for r in rows} == {0.0, 1.0}, (
            "some are right and some are not, so that agreement says something"
        )


def test_what_the_sampler_says_is_what_transformers_generates(folder, player):
    from tasks.evaluation.harness import HarnessModel

    theirs, _ = standalone(folder, "tiny_words")
    generated = [s["resps"][0][0] for s in theirs.values()]
    requests = [type("R", (), {"args": s["arguments"][0]}) for s in theirs.values()]
    ours = HarnessModel(player, 0).generate_until(requests)
    assert ours == generated and len(set(ours)) > 1 and not any("capital" in x for x in ours)


def test_a_metric_that_is_no_mean_is_the_tasks_own(folder, player):
    mine = load(folder, name="mine", task="tiny_text", tasks="data/tasks")
    rows = [{"model": "rl", **r} for r in mine.score(player, [i for i, _ in mine.texts])]
    sets, difference = summarised([mine], rows, ["rl"], "sft")
    _, theirs = standalone(folder, "tiny_text")
    perplexity = sets["mine"]["rl"]["word_perplexity"]
    assert perplexity["mean"] == pytest.approx(theirs["word_perplexity,none"], rel=1e-4)
    assert (
        perplexity["low"] <= perplexity["mean"] <= perplexity["high"]
        and perplexity["n"] == len(DOCS)
        and not difference
    )


def test_items_are_drawn_by_hash_and_examples_can_be_left_out(folder, player):
    few = load(folder, name="mine", task="tiny_choice", tasks="data/tasks", limit=3, fewshot=0)
    assert (
        len(few.texts) == 3
        and few.texts == load(folder, name="x", task="tiny_choice", tasks="data/tasks", limit=3).texts
    )
    (row,) = few.score(player, [few.texts[1][0]])
    assert row["item"] == few.texts[1][0] and row["set"] == "mine"


def test_differences_of_two_models_by_hand(folder):
    mine = load(folder, name="mine", path="data/docs.jsonl", layout="choices")
    rows = [
        {"model": m, "item": f"i{i}", "set": "mine", "acc": float(x)}
        for m, values in (("sft", (0, 0, 1, 0)), ("rl", (1, 0, 1, 1)))
        for i, x in enumerate(values)
    ]
    sets, difference = summarised([mine], rows, ["sft", "rl"], "sft")
    assert sets["mine"]["rl"]["acc"]["mean"] == 0.75 and sets["mine"]["sft"]["acc"]["mean"] == 0.25
    assert difference["rl - sft, mine, acc"]["mean"] == 0.5 and list(difference) == ["rl - sft, mine, acc"]


def test_choices_are_cut_where_the_question_ends(folder, player):
    row = choices(DOCS[0], 0)
    for chat in (False, True):
        for (before, ids), text in zip(choice_ids(player.renderer, row, chat), DOCS[0]["choices"], strict=True):
            text_read = player.renderer.tokenizer.decode(before + ids)
            assert text_read.endswith(text if chat else f"Answer: {text}") and ("<|im_start|>" in text_read) == chat


@pytest.mark.parametrize(
    "spec, message",
    [
        (
            {"name": "a", "task": "tiny_choise", "tasks": "data/tasks"},
            "no task 'tiny_choise' in data/tasks: did you mean",
        ),
        ({"name": "a", "task": "tiny_choice", "folder": "x"}, "unknown key 'folder'"),
        ({"name": "a,b", "task": "tiny_choice"}, "a name without a comma"),
        ({"name": "a", "task": "tiny_choice", "tasks": "data/none"}, "does not exist"),
        ({"name": "a", "layout": "choices", "path": "data/docs.jsonl", "question": "ask"}, "no row of data/docs.jsonl"),
    ],
)
def test_what_is_refused(folder, spec, message):
    with pytest.raises(UserError, match=message):
        load(folder, **spec)


def test_data_that_cannot_be_had_is_one_sentence(folder):
    (folder / "data/lost").mkdir()
    text = TASKS["tiny_choice"].replace("tiny_choice", "lost") + "dataset_path: json\ntest_split: test\n"
    (folder / "data/lost/lost.yaml").write_text(text + "dataset_kwargs: {data_files: {test: /none/docs.jsonl}}\n")
    with pytest.raises(UserError, match="the data of the task 'lost' could not be loaded"):
        load(folder, name="a", task="lost", tasks="data/lost")
