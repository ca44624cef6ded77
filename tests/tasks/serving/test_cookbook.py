"""Three loops of Tinker's cookbook, as they are published, against `espalier serve --training`: only the address is ours.

What they would fetch from the Hub lies in folders of those names, where `from_pretrained` and `load_dataset` look first.
"""

import json

import numpy as np
import pytest
import test_training_api as api

from synth.types import Message
from training.learner.learner import Learner, Optim, nll
from training.learner.pack import Row, pack
from training.model.model import new_model, save_model, train_tokenizer
from training.model.render import Renderer

pytest.importorskip("tinker_cookbook", reason="Tinker's cookbook is not installed here: `make cookbook` brings it")
from tinker_cookbook.recipes import rl_loop, sl_loop
from tinker_cookbook.recipes.preference.dpo import train as dpo

NAME = "Qwen/Qwen3-4B-Instruct-2507"  # a model that the cookbook knows, with ChatML
SUFFIX = " Provide a numerical answer without units, written inside \\boxed{}."
QUESTIONS = [f"What is {i} less {i - 3} ?" for i in range(4, 16)]


def rows(folder, readme="", **splits):
    folder.mkdir(parents=True)
    for split, values in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(v) + "\n" for v in values))
    if readme:
        (folder / "README.md").write_text(readme)


def undecided():
    """A model that boxes 3 or 4, each half of the time, after the prompt of the loop."""
    prompts = [q + SUFFIX for q in QUESTIONS]
    tokenizer = train_tokenizer([*prompts, "system user assistant", "Human: Assistant:"] * 20, vocab_size=400)
    model = new_model(
        tokenizer, hidden=64, layers=2, heads=4, kv_heads=2, intermediate=128, max_length=1024, init_range=0.06, seed=0
    )
    renderer = Renderer(tokenizer)
    shown = [
        (Message(role="user", content=q), Message(role="assistant", content=f"\\boxed{{{answer}}}"))
        for q in prompts
        for answer in (3, 4)
    ]
    learned = [Row(ids=ids, trainable=mask) for ids, mask in map(renderer.demonstration, shown)]
    learner = Learner(model, Optim(lr=5e-3, warmup=0, decay="constant", weight_decay=0.0))
    for _ in range(40):
        learner.step(pack(learned), nll)
    return model.eval(), tokenizer


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """The service, in a folder that has what the loops fetch."""
    folder = tmp_path_factory.mktemp("cookbook")
    model, tokenizer = undecided()
    save_model(model, tokenizer, folder / NAME)
    config = "configs:\n- config_name: main\n  data_files:\n  - split: train\n    path: train.jsonl\n"
    rows(
        folder / "openai/gsm8k",
        f"---\n{config}---\n",
        train=[{"question": q, "answer": "It is 3.\n#### 3"} for q in QUESTIONS],
    )
    talk = lambda q: [{"role": "user", "content": q}, {"role": "assistant", "content": "It is three ."}]  # noqa: E731
    rows(folder / "HuggingFaceH4/no_robots", train=[{"messages": talk(q)} for q in QUESTIONS])
    compared = [
        {"chosen": f"\n\nHuman: {q}\n\nAssistant: It is three .", "rejected": f"\n\nHuman: {q}\n\nAssistant: No ."}
        for q in QUESTIONS
    ]
    rows(folder / "Anthropic/hh-rlhf", train=compared[:8], test=compared[8:])
    it = api.Service(tmp_path_factory.mktemp("states"), model, tokenizer, NAME, 1024)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TINKER_TELEMETRY", "0")
        patch.setenv("TINKER_API_KEY", f"tml-{api.KEY}")
        yield {"base_url": f"http://127.0.0.1:{it.port}", "model_name": NAME}
    it.server.should_exit = True
    it.thread.join(600)


def steps(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def saved(folder):
    return [json.loads(line)["name"] for line in (folder / "checkpoints.jsonl").read_text().splitlines()]


def test_the_supervised_loop_learns_and_goes_on_from_its_checkpoint(at, tmp_path):
    how = {**at, "log_path": str(tmp_path), "batch_size": 2, "lora_rank": 4, "learning_rate": 1e-2, "save_every": 2}
    sl_loop.main(sl_loop.Config(**how, max_steps=3))
    assert saved(tmp_path) == ["000002", "final"]
    kept = tmp_path / "checkpoints.jsonl"
    kept.write_text(kept.read_text().splitlines()[0] + "\n")  # as if it had been killed in its third step
    sl_loop.main(sl_loop.Config(**how, max_steps=3))
    losses = [s["train_mean_nll"] for s in steps(tmp_path)]
    assert losses[2] < 0.9 * losses[0]
    assert [s["step"] for s in steps(tmp_path)] == [0, 1, 2, 2] and losses[3] == pytest.approx(losses[2], rel=1e-5)


@pytest.mark.parametrize("loss", ["importance_sampling", "gspo"])
def test_the_loop_of_reinforcement_learning_raises_its_reward(at, tmp_path, loss):
    how = {"batch_size": 3, "group_size": 32, "lora_rank": 8, "learning_rate": 5e-3, "max_tokens": 16}
    rl_loop.main(rl_loop.Config(**at, **how, log_path=str(tmp_path), max_steps=6, loss_fn=loss))
    rewards = [s["reward/total"] for s in steps(tmp_path)]
    # It draws its own seeds: ten runs of four steps began at 0.45 to 0.60 and ended 0.21 to 0.43 higher.
    assert rewards[0] < 0.75 and rewards[-1] > rewards[0] + 0.1 and saved(tmp_path) == ["final"]


def test_the_preference_loop_widens_the_margin(at, tmp_path):
    how = {"batch_size": 4, "learning_rate": 1e-2, "max_length": 256, "renderer_name": "qwen3_instruct"}
    dpo.cli_main(dpo.CLIConfig(**at, **how, log_path=str(tmp_path / "log"), max_steps=2))
    losses = [s["dpo_loss"] for s in steps(tmp_path / "log") if "dpo_loss" in s]
    assert abs(losses[0] - np.log(2)) < 1e-4 and losses[1] < losses[0] and "final" in saved(tmp_path / "log")
