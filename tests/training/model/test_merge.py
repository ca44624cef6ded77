"""One model of several: values by hand, invariants of every merge, the command, and what cannot be merged."""

import inspect
import json
import re

import numpy as np
import pytest
import tiny
import torch

from flows import cli
from tasks.core.errors import UserError
from tasks.evaluation.merging import changed, compared, merged
from tasks.planning.pieces import bind, files, module
from training.model.merge._deltas import deltas, depths, dropped, elected, trimmed
from training.model.model import load_model, save_model
from training.model.residual import input_sizes

ALL = sorted(files("merge"))


def made(piece, base, *models, activations=None, seed=0):
    def weights(one):
        return {n: torch.tensor(v, dtype=torch.float32) for n, v in one.items()}

    sizes = weights(activations or {})
    out = bind("merge", piece)(weights(base), [weights(m) for m in models], sizes, torch.Generator().manual_seed(seed))
    return {n: v.tolist() for n, v in out.items()}


def vectors(seed, n=3):
    rng = np.random.default_rng(seed)
    return [{"layers.0.w": rng.normal(size=(4, 5)).tolist(), "norm": rng.normal(size=5).tolist()} for _ in range(n)]


def test_values_by_hand():
    base, one, two = {"w": [10.0, 10.0]}, {"w": [11.0, 7.0]}, {"w": [12.0, 11.0]}
    assert made({"piece": "ties", "density": 1.0}, base, one, two) == {"w": [11.5, 7.0]}
    # Weights 1 and 4: sums 1 + 8 and -3 + 4 elect plus and plus; (1 + 8) / 5 and 4 / 4.
    weighted = made({"piece": "ties", "density": 1.0, "weights": [1, 4]}, base, one, two)
    assert weighted["w"] == pytest.approx([11.8, 11.0])
    assert made({"piece": "average", "weights": [1, 3]}, base, one, two) == {"w": [11.75, 10.0]}
    # A sum of 0 elects plus.
    assert made({"piece": "ties", "density": 1.0}, {"w": [0.0]}, {"w": [2.0]}, {"w": [-2.0]}) == {"w": [2.0]}
    dropped_half = made({"piece": "dare", "density": 0.5}, {"w": [1.0] * 8}, {"w": [2.0] * 8})["w"]
    assert set(dropped_half) == {1.0, 3.0}


def test_values_are_those_of_mergekit():
    """Recorded from mergekit 0.1.5 (sparsify.magnitude and generalized_task_arithmetic.get_mask with consensus "sum",
    normalised) on these vectors, density 0.5 and weights 1, 2 and 0.5."""
    base, *models = vectors(7, 4)
    got = made({"piece": "ties", "density": 0.5, "weights": [1, 2, 0.5]}, base, *models)
    np.testing.assert_allclose(got["norm"], [0.6341993, -1.9924198, 0.119354, 0.2712643, 2.0004165], atol=1e-6)
    first = [0.7476886, -1.6384459, -0.2741379, 0.3682927, 1.5235294]
    np.testing.assert_allclose(np.array(got["layers.0.w"])[0], first, atol=1e-6)


def test_sums_without_trimming_are_those_of_mergekit():
    """Recorded from mergekit 0.1.5 on the same vectors, weights 1, 2 and 0.5: `task_arithmetic` with lambda 0.7 without
    normalising, which is also its `dare_linear` at density 1; its `dare_ties` at density 1, normalised; `linear`, normalised."""
    base, *models = vectors(7, 4)
    summed = [2.6973634, -2.2987506, 1.3942454, -1.5694357, 2.2204585]
    dare = {"piece": "dare", "density": 1.0, "weights": [1, 2, 0.5]}
    for piece, want in (
        ({"piece": "task_arithmetic", "scale": 0.7, "weights": [1, 2, 0.5]}, summed),
        ({**dare, "scale": 0.7}, summed),
        ({**dare, "sign_election": True}, [0.0109582, -1.8521146, -0.1810416, -0.4800418, 1.5048154]),
        ({"piece": "average", "weights": [1, 2, 0.5]}, [0.0109581, -1.077401, -0.1810416, -0.4800418, 0.9990805]),
    ):
        np.testing.assert_allclose(made(piece, base, *models)["norm"], want, atol=2e-6, err_msg=str(piece))


@pytest.mark.parametrize("scale", [1.0])
def test_one_model_at_scale_one_is_itself_to_the_bit(scale):
    for seed in range(20):
        base, one = vectors(seed, 2)
        for piece in ({"piece": "task_arithmetic", "scale": scale}, {"piece": "average"}):
            got = made(piece, base, one)
            assert {n: torch.tensor(v) for n, v in one.items()}.keys() == got.keys()
            assert all(torch.equal(torch.tensor(got[n]), torch.tensor(one[n])) for n in one)


@pytest.mark.parametrize("name", ALL)
def test_merging_the_base_with_itself_changes_nothing(name):
    base, _ = vectors(1, 2)
    got = made({"piece": name}, base, base, base, activations={"layers.0.w": [1, 2, 3, 4, 5]})
    assert all(torch.equal(torch.tensor(got[n]), torch.tensor(base[n])) for n in base)


@pytest.mark.parametrize("name", ALL)
def test_the_order_of_models_and_the_scale_of_weights(name):
    base, one, two = vectors(3)
    knobs = {"density": 1.0} if "density" in inspect.signature(getattr(module("merge", name), name)).parameters else {}
    a, b = (made({"piece": name, **knobs}, base, *pair) for pair in ((one, two), (two, one)))
    assert all(np.allclose(a[n], b[n], atol=1e-6) for n in base)
    with pytest.raises(ValueError, match="there are 2 models and 3 weights"):
        made({"piece": name, "weights": [1, 1, 1]}, base, one, two)
    doc = module("merge", name).__doc__
    assert re.search(r"\b20\d\d\b", doc) and "arXiv" in doc and "theta" in doc


def test_dropping_is_unbiased():
    tau, rng = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64), torch.Generator().manual_seed(0)
    mean = torch.stack([dropped(tau, 0.7, rng) for _ in range(20000)]).mean(0)
    torch.testing.assert_close(mean, tau, rtol=0.02, atol=0)


def test_five_blocks_are_scaled_by_their_depth():
    names = [
        "model.embed_tokens.weight",
        *(f"model.layers.{i}.mlp.w" for i in range(5)),
        "model.norm.weight",
        "lm_head.weight",
    ]
    assert depths(names) == dict(zip(names, [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0], strict=True))
    assert depths(["h.0.w"]) == {"h.0.w": 1.0}, "one block keeps all"


@pytest.mark.parametrize("density", [0, 1.2, -1])
def test_a_density_that_is_no_share_is_refused(density):
    for piece in ("ties", "dare"):
        with pytest.raises(ValueError, match="density is"):
            made({"piece": piece, "density": density}, *vectors(0))
    with pytest.raises(ValueError, match="omega is 2"):
        made({"piece": "activation_informed", "omega": 2}, *vectors(0))
    with pytest.raises(ValueError, match="add up to 0"):
        made({"piece": "average", "weights": [1, -1]}, *vectors(0))


def test_the_shared_steps_by_hand():
    assert trimmed(torch.tensor([3.0, -4.0, 1.0, 0.5]), 0.5).tolist() == [3.0, -4.0, 0.0, 0.0]
    parts = [torch.tensor([1.0, -3.0]), torch.tensor([2.0, 1.0])]
    assert elected(parts, [1, 1], sign=True, mean=False).tolist() == [3.0, -3.0]
    assert elected(parts, [1, 1], sign=False, mean=True).tolist() == [1.5, -1.0]
    assert deltas({"w": torch.ones(1)}, [{"w": torch.zeros(1)}], "w")[0].tolist() == [-1.0]


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Four models: a base, two of its shape, and one that is larger."""
    monkeypatch.chdir(tmp_path)
    for name, more in {"base": {}, "one": {"seed": 1}, "two": {"seed": 2}, "large": {"hidden": 48}}.items():
        save_model(tiny.build(**more), tiny.tokenizer(), tmp_path / "models" / name)
    return tmp_path


def test_the_command_writes_a_model_that_loads(folders, capsys):
    call = ["merge", "ties", "out", "models/one", "models/two", "--base", "models/base", "--knob", "density=0.5"]
    assert cli.main(call) == 0 and "ties of models/one, models/two over models/base" in capsys.readouterr().out
    model, tokenizer = load_model("out")
    weights = [dict(load_model(f"models/{n}")[0].named_parameters()) for n in ("base", "one", "two")]
    want = bind("merge", {"piece": "ties", "density": 0.5})(weights[0], weights[1:], {}, torch.Generator())
    assert all(torch.equal(p, want[n]) for n, p in model.named_parameters())
    assert tokenizer.get_vocab() == tiny.tokenizer().get_vocab()
    record = json.loads((folders / "out/merge.json").read_text())
    assert record["method"] == "ties" and record["knobs"] == {"density": 0.5}


def taught(question, answer):
    """A tiny model that has learned one answer."""
    from synth.types import Message
    from training.learner.learner import Learner, Optim, nll
    from training.learner.rows import demonstration_row, weighted
    from training.model.render import Renderer

    model, renderer = tiny.build(seed=1), Renderer(tiny.tokenizer())
    talk = [Message(role="user", content=question), Message(role="assistant", content=answer)]
    learner = Learner(model, Optim(lr=1e-2, warmup=5, steps=60))
    for _ in range(60):
        learner.step(weighted([demonstration_row(renderer, talk, 0.0)], "cpu"), nll)
    return model


def test_the_command_says_what_a_merge_gained_and_lost(folders, capsys):
    from synth.testsets.layouts import ASK

    save_model(taught(f"2 + 3\n{ASK}", "<answer>5</answer>"), tiny.tokenizer(), folders / "models/sums")
    rows = [{"question": "2 + 3", "answer": "5"}, {"question": "1 + 1", "answer": "2000"}]
    (folders / "sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    call = ["merge", "average", "out", "models/sums", "--base", "models/base", "--max-tokens", "24"]
    assert cli.main([*call, "--evaluate", "sums.jsonl"]) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert table[1][:5] == ["sums", "models/base", "0.0", "%", "of"] and table[1][-3:-1] == ["1", "0"]
    assert table[2][1:3] == ["models/sums", "50.0"] and table[2][-3:-1] == ["0", "0"]  # the mean of one is that one
    assert table[3][1:3] == ["out", "50.0"]
    record = json.loads((folders / "out/merge.json").read_text())["measured"]
    assert record["tests"] == ["sums.jsonl"] and record["tasks"]["sums"]["over"]["models/base"]["gained"] == 1


def test_tasks_are_compared_by_hand():
    scores = {"base": {"old": (1, 1, 1, 0), "new": (0, 0)}, "one": {"old": (0, 0, 1, 0), "new": (1, 1)}}
    scores["merge"] = {"old": (1, 0, 1, 0), "new": (1, 0)}
    rows = [
        {"run": run, "problem": f"{task}{i}", "sample": 0, "family": task, "score": float(v)}
        for run, of in scores.items()
        for task, values in of.items()
        for i, v in enumerate(values)
    ]
    out = compared(rows, "merge", ["base", "one"])
    assert list(out) == ["old", "new", "all"] and list(out["old"]["right"]) == ["base", "one", "merge"]
    assert out["old"]["right"]["merge"]["mean"] == 0.5
    over = {(t, m): (o["gained"], o["lost"], o["difference"]["mean"]) for t in out for m, o in out[t]["over"].items()}
    assert over["old", "base"] == (0, 1, -0.25) and over["old", "one"] == (1, 0, 0.25)
    assert over["new", "base"] == (1, 0, 0.5) and over["new", "one"] == (0, 1, -0.5)
    assert over["all", "base"] == (1, 1, 0.0) and over["all", "one"] == (1, 1, 0.0)
    low, high = (out["old"]["over"]["base"]["difference"][k] for k in ("low", "high"))
    assert low < -0.25 < high and "p_holm" in out["old"]["over"]["base"]["difference"]


def test_activations_are_the_mean_size_of_what_enters():
    model, rows = tiny.build(), tiny.ids(5, 7)
    sizes = input_sizes(model, rows)
    assert len(sizes) == 2 * 7 and all(
        s.shape == (dict(model.named_parameters())[n].shape[1],) for n, s in sizes.items()
    )
    first = model.base_model.layers[0]
    with torch.no_grad():
        entered = first.input_layernorm(model.get_input_embeddings()(torch.from_numpy(np.concatenate(rows))))
    torch.testing.assert_close(sizes["model.layers.0.self_attn.q_proj.weight"], entered.abs().mean(0))


ONE = ["out", "models/one", "--base", "models/base"]
FILES = {
    "good": {"question": "2 + 3", "answer": "5"},
    "sub/good": {"question": "2 + 3", "answer": "5"},
    "bad": {"colour": "red"},
    "choices": {"question": "2 + 3", "choices": ["5", "6"], "answer": 0},
}
MISTAKES = [
    (
        ["ties", "out", "models/one", "models/large", "--base", "models/base"],
        "models/base and models/large have different shapes",
    ),
    (["tiez", "out", "models/one", "--base", "models/base"], "did you mean 'ties'"),
    (["ties", "models/one", "models/two", "--base", "models/base"], "models/one is there already"),
    (["ties", "out", "models/one", "--base", "models/base", "--knob", "densty=1"], "has no knob 'densty'"),
    (["ties", "out", "models/one", "--base", "models/base", "--knob", "density"], "is no NAME=VALUE"),
    (["ties", "out", "models/one", "--base", "models/base", "--knob", "density=2"], "density is 2"),
    (["activation_informed", "out", "models/one", "--base", "models/base"], "name a file with --texts"),
    (["average", "out", "models/one", "--base", "models/base", "--texts", "nowhere"], "--texts nowhere does not exist"),
    (["average", *ONE, "--evaluate", "nowhere.jsonl"], "nowhere.jsonl does not exist: name a file of questions"),
    (["average", *ONE, "--evaluate", "good.jsonl:plane"], "there is no layout 'plane': did you mean 'plain'"),
    (["average", *ONE, "--evaluate", "bad.jsonl"], "no row of bad.jsonl is a question of the layout plain"),
    (["average", *ONE, "--evaluate", "choices.jsonl:choices"], "measured by its choices"),
    (["average", *ONE, "--evaluate", "good.jsonl", "--evaluate", "sub/good.jsonl"], "two files are called good"),
    (["average", *ONE, "--evaluate", "good.jsonl", "--samples", "0"], "answers and tokens are 1 or more"),
]


@pytest.mark.parametrize(("call", "words"), MISTAKES)
def test_mistakes_are_one_sentence(folders, capsys, call, words):
    (folders / "sub").mkdir()
    for name, row in FILES.items():
        (folders / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    assert cli.main(["merge", *call]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error
    assert not (folders / "out").exists()


def test_another_tokenizer_is_refused(folders):
    from training.model.model import new_model, train_tokenizer

    other = train_tokenizer([t[::-1] for t in tiny.TEXTS], vocab_size=len(tiny.tokenizer()))
    rest = {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate": 48, "max_length": 256, "seed": 0}
    model = new_model(other, init_range=0.3, **rest)
    if len(other) != len(tiny.tokenizer()):
        model.resize_token_embeddings(len(tiny.tokenizer()))
    save_model(model, other, folders / "models/reversed")
    with pytest.raises(UserError, match="base and reversed have different tokenizers"):
        merged(bind("merge", {"piece": "average"}), ("base", "models/base"), [("reversed", "models/reversed")])


def test_gained_and_lost_are_counted():
    import pandas as pd

    def rows(*scores):
        return pd.DataFrame({"problem": list("abcd"), "score": scores})

    assert changed(rows(1.0, 1.0, 0.0, 0.5), rows(0.0, 1.0, 1.0, 1.0)) == {"gained": 1, "lost": 2}
