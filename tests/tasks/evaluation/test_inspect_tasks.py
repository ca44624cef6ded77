"""Tasks of Inspect on our models, against Inspect's own model for transformers."""

from importlib.util import find_spec

import pytest
import tiny

from tasks.core.errors import UserError
from tasks.evaluation.benchmarks import load_benchmark
from tasks.evaluation.scored_set import Player
from tasks.runtime.stage import Stage
from training.model.model import load_model, save_model
from training.model.render import Renderer

if find_spec("inspect_ai") is None:
    pytest.skip("Inspect is not installed here: pip install 'espalier[inspect]'", allow_module_level=True)

TASKS = '''
from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageUser, GenerateConfig
from inspect_ai.scorer import Score, accuracy, includes, scorer
from inspect_ai.solver import chain_of_thought, generate, multiple_choice, system_message, use_tools
from inspect_ai.tool import python

PLACES = "Norvia Zelton Karo Solve".split()

def asked(i):
    text = f"What is the capital of {PLACES[i % 4]} {i} ?"
    return Sample(input=text if i % 2 else [ChatMessageUser(content=text)], target="a", choices=["Zelton", "58", "Sort"])

@scorer(metrics=[accuracy()])
def several():
    async def score(state, target):
        said = state.output.completion
        return Score(value={"long": len(said) > 12, "words": len(said.split()) / 100})
    return score

@task
def words():
    """Two turns behind a system message."""
    return Task(dataset=[asked(i) for i in range(12)], solver=[system_message("Say it."), generate(), generate()],
                scorer=[includes(), several()], config=GenerateConfig(max_tokens=8, temperature=1.0, top_k=1))

@task
def choice():
    data = [Sample(input="Which?", choices=["Zelton", "58"], target="B", id=f"c{i}") for i in range(3)]
    return Task(dataset=data, solver=multiple_choice(), scorer=includes(), config=GenerateConfig(max_tokens=4))

@task
def drawn():
    return Task(dataset=[asked(i) for i in range(6)], solver=generate(), scorer=several(), epochs=Epochs(4),
                config=GenerateConfig(max_tokens=8, temperature=1.0))

@task
def tools():
    return Task(dataset=[asked(1)], solver=[use_tools(python()), generate()], scorer=includes())

@task
def boxed():
    return Task(dataset=[asked(1)], solver=generate(), scorer=includes(), sandbox="docker")

@task
def long():
    return Task(dataset=[asked(1)], solver=generate(), scorer=includes(), config=GenerateConfig(max_tokens=100000))

@task
def broken():
    raise ValueError("no data\\nhere")
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    save_model(tiny.build(), tiny.tokenizer(), root / "model")
    (root / "data").mkdir()
    (root / "data/mine.py").write_text(TASKS)
    return root


@pytest.fixture(scope="module")
def player(folder):
    model, tokenizer = load_model(folder / "model")
    return Player(model, Renderer(tokenizer))


def load(root, task, **more):
    return load_benchmark(Stage("evaluate", root=root, deps=["data"]), {"name": "mine", "inspect": task, **more}, 0)


def scored(root, player, task, **more):
    benchmark = load(root, f"data/mine.py@{task}", **more)
    return {r["item"]: r for r in benchmark.score(player, [i for i, _ in benchmark.texts])}


def test_every_sample_is_scored_as_inspect_scores_it_with_transformers(folder, player, tmp_path, monkeypatch):
    from inspect_ai import eval as run_inspect

    from tasks.evaluation import inspect_tasks

    (log,) = run_inspect(
        f"{folder}/data/mine.py@words",
        model=f"hf/{folder}/model",
        model_args={"device": "cpu", "torch_dtype": "float32"},
        log_dir=str(tmp_path),
        display="none",
        max_connections=12,
    )
    assert log.status == "success", log.error
    monkeypatch.setattr(inspect_tasks, "TOGETHER", 5)  # more samples than one batch holds
    ours = scored(folder, player, "words")
    assert len(ours) == len(log.samples) == 12
    for s in log.samples:
        theirs = {f"several/{k}": float(v) for k, v in s.scores["several"].value.items()}
        assert ours[str(s.id)] == {
            "item": str(s.id),
            "set": "mine",
            "includes": float(s.scores["includes"].value == "C"),
            **theirs,
        }
    for metric in ("includes", "several/words"):
        assert len({r[metric] for r in ours.values()}) > 1, "samples differ, so that agreement says something"


def test_samples_are_drawn_by_hash_and_keep_their_names(folder, player):
    few = scored(folder, player, "choice", limit=2)
    assert len(few) == 2 and set(few) < {"c0", "c1", "c2"}
    assert {r["includes"] for r in few.values()} <= {0.0, 1.0}
    assert dict(load(folder, "data/mine.py@words").texts)["1"] == "What is the capital of Norvia 0 ?"


def test_epochs_are_averaged_and_a_second_run_says_the_same(folder, player):
    one, two = (scored(folder, player, "drawn") for _ in range(2))
    assert one == two
    assert any(r["several/long"] not in (0.0, 1.0) for r in one.values()), "its four samples differ"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("data/mine.py@tools", "gives its model tools, .* run it with Inspect itself against `espalier serve MODEL`"),
        ("data/mine.py@long", "asks for 100000 more, and the model sees .*: give the task fewer max_tokens"),
        ("data/mine.py@boxed", "needs a sandbox: run it with Inspect itself"),
        ("data/mine.py@broken", "could not be made: no data here"),
        ("data/mine.py@other", "there is no task 'data/mine.py@other'"),
        ("data/gone.py@words", "data/gone.py does not exist"),
        ("no_such_package@words", "there is no task 'no_such_package@words': No module named"),
        ("data/mine.py", "write FILE.py@TASK with a file below data/, or MODULE@TASK"),
    ],
)
def test_what_is_refused_is_one_sentence(folder, player, task, message):
    with pytest.raises(UserError, match=message) as e:
        benchmark = load(folder, task)
        benchmark.score(player, [i for i, _ in benchmark.texts])
    assert "\n" not in str(e.value)


def test_nothing_is_left_beside_the_file(player, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/mine.py").write_text(TASKS)
    scored(tmp_path, player, "choice", limit=1)
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["mine.py"]
