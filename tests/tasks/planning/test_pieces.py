"""The folder is the registry: found by name, own folders included, unknown names refused with the nearest."""

import sys

import pytest

from tasks.core.errors import UserError
from tasks.core.paths import CODE, KIND_OF, KINDS
from tasks.planning import pieces
from tasks.planning.resolve import read_recipe


def test_a_piece_is_found_by_its_file_and_bound_with_its_knobs():
    bound = pieces.bind("advantage", {"piece": "quantile", "k": 0.3})
    assert bound.func is pieces.find("advantage", "quantile")
    assert (bound.keywords, bound.piece, bound.prepare) == ({"k": 0.3}, "advantage/quantile", None)


@pytest.mark.parametrize(
    "folder, name, words",
    [
        ("advantage", "quantle", ["did you mean 'quantile'", "valid: ", "grpo"]),
        ("advantage", "__init__", ["valid: "]),
        ("training.advantages", "x", ["no folder of pieces called 'training.advantages'"]),
        ("training.advantage", "gigpo", ["'training.advantage': it is the kind advantage now: write advantage"]),
        ("advantage", "training.advantage/gigpo", ["it is advantage/gigpo now: write gigpo"]),
        ("advantage", "training.rl.advantage/gigpo", ["it is advantage/gigpo now: write gigpo"]),
        ("advantage", "advantage/gigpo", ["no piece 'advantage/gigpo' in advantage: write gigpo alone"]),
        ("policy_loss", "training.surrogate/clip", ["it is policy_loss/clip now: write clip"]),
        ("advantage", "training.surrogate/clip", ["policy_loss/clip is a piece of policy_loss", "here a piece of adv"]),
        ("metric", "behaviour", ["it is metric/format_and_refusal now: write format_and_refusal"]),
        ("metric", "training.evaluate/behaviour", ["it is metric/format_and_refusal now"]),
    ],
)
def test_unknown_names(folder, name, words):
    with pytest.raises(UserError) as e:
        pieces.find(folder, name)
    assert all(w in str(e.value) for w in words), str(e.value)


@pytest.fixture
def own(tmp_path, monkeypatch):
    import synth.verify
    import training.rl.advantage

    folder = tmp_path / "advantage"
    folder.mkdir(parents=True)
    (folder / "my_own.py").write_text(
        "NEEDS = {'value'}\ndef my_own(groups, *, k=1):\n    return k\ndef prepare(batch, *, k=1):\n    batch.append(k)\n"
    )
    monkeypatch.setenv("ESPALIER_PATH", str(tmp_path))
    before = {p: list(p.__path__) for p in (training.rl.advantage, synth.verify)}
    yield tmp_path
    for package, path in before.items():
        package.__path__[:] = path
    for name in ("training.rl.advantage.my_own", "training.rl.advantage.broken", "synth.verify.always"):
        sys.modules.pop(name, None)


def test_a_piece_of_the_users_own(own):
    bound, batch = pieces.bind("advantage", {"piece": "my-own", "k": 3}), []
    bound.prepare(batch)
    assert (bound(None), batch, bound.needs, bound.piece) == (3, [3], {"value"}, "advantage/my_own")
    assert "my_own" in pieces.files("advantage") and "grpo" in pieces.files("advantage")


def test_libraries_that_import_by_name_find_the_users_own_too(own):
    (own / "verifier").mkdir(parents=True)
    (own / "verifier" / "always.py").write_text(
        "from synth.types import Scored\ndef always(problem, answer):\n    return Scored(value=1.0)\n"
    )
    pieces.open_own()
    from synth.types import Problem
    from synth.verify import verify

    assert (
        verify(Problem.make(prompt="?", answer="!", verifier="always", family="f", split="train"), "anything").value
        == 1.0
    )


def test_one_name_means_one_thing(own):
    (own / "advantage" / "grpo.py").write_text("def grpo(): ...\n")
    with pytest.raises(UserError, match="defined twice.*rename yours"):
        pieces.find("advantage", "quantile")


def test_a_file_without_its_function(own):
    (own / "advantage" / "broken.py").write_text("def other(): ...\n")
    with pytest.raises(UserError, match="no function 'broken'"):
        pieces.find("advantage", "broken")


def test_bind_all_binds_single_pieces_lists_and_leaves_the_rest():
    params = {"advantage": {"piece": "grpo"}, "filters": [{"piece": "spread"}], "curriculum": None, "lr": 1e-3}
    folders = {"advantage": "advantage", "filters": "filter", "curriculum": "curriculum"}
    bound = pieces.bind_all(folders, params)
    assert bound["advantage"].piece == "advantage/grpo" and bound["filters"][0].piece == "filter/spread"
    assert bound["curriculum"] is None and bound["lr"] == 1e-3


def test_every_former_folder_is_gone_and_its_kind_is_here():
    from tasks.planning import former

    assert len(former.FOLDERS) > 20
    for folder, kind in former.FOLDERS.items():
        assert kind in KINDS and folder not in KIND_OF
        assert not (CODE.joinpath(*folder.split(".")) / "__init__.py").exists(), folder
        assert former.piece_now(f"{folder}/a-piece") == f"{kind}/a_piece"
    for name, now in former.PIECES.items():
        kind, _, old = name.partition("/")
        assert old not in pieces.files(kind) and now in pieces.files(kind)


def test_a_piece_in_a_former_folder_of_the_users_own_is_told_where_it_belongs(own):
    (own / "training" / "surrogate").mkdir(parents=True)
    (own / "training" / "surrogate" / "mine.py").write_text("def mine(): ...\n")
    with pytest.raises(UserError, match="training/surrogate/mine.py is in a former folder: move it to .*policy_loss"):
        pieces.find("policy_loss", "mine")
    (own / "flows" / "recipes").mkdir(parents=True)
    (own / "flows" / "recipes" / "our-own.yaml").write_text("id: our-own\n")
    with pytest.raises(UserError, match="our-own.yaml is in a former folder: move it to .*recipes"):
        read_recipe("our-own")
