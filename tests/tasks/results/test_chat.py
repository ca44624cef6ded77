"""Talking to a model: every turn is shown when it is made, endings are named, text of a model does nothing to the
terminal, mistakes are a sentence."""

import re
import sys

import numpy as np
import pytest
from sealed import seal

from flows import cli
from synth.knowledge.kb import Passage
from synth.types import Problem
from tasks.results import chat
from tasks.storage import tables
from training.model.model import new_model, save_model, train_tokenizer
from training.types import Segment

QUESTION = "What is the capital of Norvia?"


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    """A project with two passages, one held-out question and an untrained model in the place of `sft`."""
    root = tmp_path_factory.mktemp("project")
    (root / "params.yaml").write_text("recipe: grpo\n")
    texts = ["The capital of Norvia is Zelton.", "The capital of Karo is Milbe."]
    passages = [
        Passage(id=f"p{i}", entity=t.split()[3], title=t.split()[3], text=t, facts=()) for i, t in enumerate(texts)
    ]
    tables.write(root / "artifacts/kb/passages.parquet", passages, Passage)
    held_out = Problem.make(
        prompt=QUESTION, answer="Zelton", verifier="exact", env="search", family="entity_tree", split="test"
    )
    tables.write(root / "artifacts/questions/problems.parquet", [held_out], Problem)
    tokenizer = train_tokenizer(texts * 3, vocab_size=320)
    model = new_model(
        tokenizer, hidden=16, layers=1, heads=2, kv_heads=1, intermediate=32, max_length=256, init_range=0.05, seed=1
    )
    save_model(model, tokenizer, root / "artifacts/sft/model")
    seal(root)
    return root


@pytest.fixture
def project(untrained, monkeypatch):
    monkeypatch.chdir(untrained)
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    return untrained


@pytest.fixture
def says(monkeypatch):
    """Make the model say these turns, whatever it is asked; None is a turn that does not end."""
    heard = []

    def script(*turns):
        class Sampler:
            def __init__(self, model, end_id):
                pass

            def open(self, prompts, seeds):
                self.left = list(turns)
                return self

            def observe(self, rows, new):
                heard.append([chat_renderer.decode(ids) for ids in new])

            def generate(self, sampling):
                text = self.left.pop(0)
                ids = chat_renderer.turn(text or "on and on")
                ids = ids if text is not None else ids[:-1]
                return [
                    Segment(
                        ids=ids,
                        role="model",
                        logp=np.zeros(len(ids), np.float32),
                        stop="end" if text is not None else "length",
                    )
                ]

        monkeypatch.setattr(chat, "TorchSampler", Sampler)

    real = chat.Renderer

    def renderer(tokenizer):
        nonlocal chat_renderer
        chat_renderer = real(tokenizer)
        return chat_renderer

    chat_renderer = None
    monkeypatch.setattr(chat, "Renderer", renderer)
    script.heard = heard
    return script


def said(capsys, *args, code=0):
    assert cli.main(["chat", *args]) == code
    out = capsys.readouterr()
    return out.out if code == 0 else out.err


def test_an_untrained_model_from_its_folder(project, capsys):
    first = said(capsys, "artifacts/sft/model", "--question", QUESTION, "--temperature", "1")
    assert first.strip() and first == said(capsys, "sft", "--question", QUESTION, "--temperature", "1")
    assert first != said(capsys, "sft", "--question", QUESTION, "--temperature", "1", "--seed", "5")


def test_a_decoder_answers_and_says_what_it_cost(project, capsys):
    plain = said(capsys, "sft", "--question", QUESTION)
    text = said(capsys, "sft", "--question", QUESTION, "--decoder", "greedy")
    cost = re.search(r"forward tokens: (\d+) of the policy; [\d.]+ s$", text, re.MULTILINE)
    assert cost and int(cost.group(1)) > 20 and text.splitlines()[-1] == plain.splitlines()[-1]


def test_a_decoder_that_reads_the_model_before_preference_training(project, capsys):
    """`implicit_reward` draws from artifacts/sft, whatever model is asked, and both models are charged."""
    text = said(capsys, "sft", "--question", QUESTION, "--decoder", "implicit_reward")
    cost = re.search(r"forward tokens: (\d+) of the reference, (\d+) of the policy; ", text)
    assert cost and int(cost.group(1)) > int(cost.group(2)) > 20, text


def test_a_decoder_of_two_models_where_one_is_not_there(untrained, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("recipe: grpo\n")
    words = [str(untrained / "artifacts/sft/model"), "--kb", str(untrained / "artifacts/kb"), "--question", QUESTION]
    text = said(capsys, *words, "--decoder", "implicit_reward", code=2)
    assert text.startswith("error: the decoder implicit_reward: ") and text.count("\n") == 1
    assert "there is none: run the stage sft, or take a decoder that needs none" in text


def test_searches_their_results_and_the_answer_in_order(project, capsys, says):
    says("<search>capital of Norvia</search>", "I read it: <answer>Zelton</answer>")
    lines = [line.strip() for line in said(capsys, "sft", "--question", QUESTION).splitlines()]
    assert lines == [
        "search capital of Norvia",
        "The capital of Norvia is Zelton.",
        "The capital of Karo is Milbe.",
        "I read it:",
        "answer Zelton",
        "right",
    ]
    assert "The capital of Norvia is Zelton." in says.heard[0][0], "the model hears what is shown"


@pytest.mark.parametrize(
    "turns, words",
    [
        (["<answer>Milbe</answer>"], ["answer Milbe", "wrong (reference: Zelton)"]),
        (["dunno"], ["dunno", "neither a search nor an answer"]),
        (["<search>zzz</search>"] * 6, ["nothing found", "no more searches"]),
        ([None], ["on and on", "cut off"]),
    ],
)
def test_endings(project, capsys, says, turns, words):
    says(*turns)
    text = said(capsys, "sft", "--question", QUESTION)
    assert all(w in text for w in words), text


def test_no_verdict_where_nothing_is_known(project, capsys, says):
    says("<answer>4</answer>")
    assert said(capsys, "sft", "--question", "What is 2 + 2?").split() == ["answer", "4"]


def test_text_of_a_model_does_nothing_to_the_terminal(project, capsys, says):
    says("\x1b]0;owned\x07 [red]x[/red] \x1b[2J <answer>[bold]\x9b31m</answer>")
    text = said(capsys, "sft", "--question", QUESTION)
    assert "[red]x[/red]" in text and "answer [bold]" in text and not set("\x1b\x07\x9b") & set(text)


def test_questions_from_a_pipe(project, capsys, says, monkeypatch):
    says("<answer>4</answer>")
    monkeypatch.setattr(sys, "stdin", iter_stdin(["one?\n", "\n", "two?\n"]))
    assert said(capsys, "sft").split() == ["?", "one?", "answer", "4", "?", "two?", "answer", "4"]


def test_in_a_terminal_enter_asks_what_was_held_out(project, capsys, says, monkeypatch):
    says("<answer>Zelton</answer>")
    monkeypatch.setattr(sys, "stdin", iter_stdin([], tty=True))
    typed = iter(["", "", "mine?"])

    def ask(prompt):
        for line in typed:
            return line
        raise EOFError

    monkeypatch.setattr("builtins.input", ask)
    text = said(capsys, "sft")
    assert text.count(f"? {QUESTION}") == 1, "one question is held out, so the second Enter asks nothing"
    assert text.count("right") == 1 and text.count("answer Zelton") == 2


class iter_stdin(list):
    def __init__(self, lines, tty=False):
        super().__init__(lines)
        self.tty = tty

    def isatty(self):
        return self.tty


@pytest.mark.parametrize(
    "args, words",
    [
        (["rl"], ["artifacts/rl/model does not exist", "`dvc repro rl`"]),
        (["sfd"], ["no model 'sfd'", "did you mean 'sft'"]),
        (["./nowhere"], ["there is no model folder nowhere"]),
        (["artifacts/kb"], ["artifacts/kb", "no tokenizer"]),
        (["sft", "--kb", "elsewhere"], ["elsewhere/passages.parquet does not exist", "--kb"]),
        (["sft", "--temperature", "-1"], ["the temperature is -1"]),
        (["sft", "--decoder", "greedi", "--question", "x"], ["no piece 'greedi' in decode", "did you mean 'greedy'"]),
        (
            ["sft", "--decoder", "best_of_n", "--question", "x"],
            ["the decoder best_of_n", "train one (the stage reward)"],
        ),
        (["sft", "--decoder", "greedy", "--budget", "3", "--question", "x"], ["has no room for an answer"]),
        (["sft", "--budget", "3", "--question", "x"], ["--budget is what a decoder may spend"]),
    ],
)
def test_mistakes_are_one_sentence(project, capsys, args, words):
    text = said(capsys, *args, code=2)
    assert text.startswith("error: ") and text.count("\n") == 1 and all(w in text for w in words), text


@pytest.mark.parametrize("text", ["Zelton, I think.", "It is <answer>Zelton</answer>."])
def test_a_project_without_a_knowledge_base_is_asked_without_a_search_tool(
    untrained, tmp_path, says, capsys, monkeypatch, text
):
    monkeypatch.delenv("ESPALIER_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("recipe: grpo\n")
    (tmp_path / "dvc.yaml").write_text("stages: {plan: {}, sft: {}, evaluate: {}}\n")
    says(text)
    assert cli.main(["chat", str(untrained / "artifacts/sft/model"), "--question", QUESTION]) == 0
    out = capsys.readouterr().out
    assert "Zelton" in out and "neither a search" not in out and "wrong" not in out
    (tmp_path / "dvc.yaml").write_text("stages: {plan: {}, kb: {}, sft: {}}\n")
    assert cli.main(["chat", str(untrained / "artifacts/sft/model"), "--question", QUESTION]) == 2
    assert "there is nothing to search: `dvc repro kb` makes it" in capsys.readouterr().err
