"""The samples that `rl` keeps of generators: the pixels that the reward saw, of the steps that it says, on a page that nobody needs Pillow for."""

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from synth.types import Sampling
from tasks.core.errors import UserError
from tasks.lab.worlds import Room, plans, quiet, run_stage
from tasks.models.control import actor
from tasks.models.samples import PROMPTS, Samples, shown
from training.env.control import _drawn
from training.env.control import molecules as chemistry
from training.env.control.key_door import key_door
from training.env.control.modes import modes
from training.env.control.molecules import made, molecules, parsed
from training.env.control.sprites import Sprites, sprites
from training.env.control.views import views
from training.rollout.control import seeds

TINY = {"warm_steps": 0, "hidden": 8}
STEPS = 5


def pixels(url):
    with Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,")))) as shown:
        return np.asarray(shown.convert("RGB"))


def rows(root):
    return [json.loads(line) for line in (root / "artifacts/rl/samples.jsonl").read_text().splitlines()]


def ran(root, recipe="flow-grpo", **control):
    changes = {
        "control": {"piece": "sprites", "window": 2, **TINY, **control},
        "prompts_per_step": 2,
        "samples_per_prompt": 4,
        "checkpoint_every": 1,
    }
    root.mkdir(exist_ok=True)
    with quiet():
        run_stage(Room(root, 1, recipe), "rl", plans(recipe, {"rl": {**changes, "steps": STEPS}}, STEPS)["rl"])
    return root / "artifacts" / "rl"


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """(root of a run, the samples that its reward saw, call by call)."""
    root, judged, judge = tmp_path_factory.mktemp("run"), [], Sprites.judge
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sprites, "judge", lambda self, x, given: judged.append(x.copy()) or judge(self, x, given))
        ran(root)
    return root, judged


def test_the_pictures_of_the_last_step_are_what_its_reward_saw(learned):
    root, judged = learned
    assert len(judged) == STEPS
    kept = rows(root)
    assert sorted({r["step"] for r in kept}) == [0, 2, 4]
    for step in (0, 2, 4):
        mine = [r for r in kept if r["step"] == step]
        assert len(mine) == 8
        for row, sample in zip(mine, judged[step], strict=True):
            (url,) = row["messages"][1]["pictures"]
            back = pixels(url).reshape(-1) / 127.5 - 1
            assert np.abs(back - np.clip(sample, -1, 1)).max() <= 0.5 / 127.5 + 1e-9
    scores = [json.loads(line)["score"] for line in (root / "artifacts/rl/episodes.jsonl").read_text().splitlines()]
    assert [r["score"] for r in kept if r["step"] == 4] == scores


def test_the_page_has_each_prompt_picture_and_score(learned):
    root, _ = learned
    page = (root / "artifacts/rl/samples.html").read_text()
    assert json.loads((root / "artifacts/rl/card.json").read_text())["samples"] == 24
    for row in rows(root):
        assert f"<h3>{row['messages'][0]['content']}</h3>" in page
        assert row["messages"][1]["pictures"][0] in page and f"<figcaption>{row['outcome']}, shape" in page
    for step in (0, 2, 4):
        assert f"<h2>Samples of step {step}</h2>" in page


def test_a_run_that_was_killed_keeps_the_same_samples(learned, tmp_path, monkeypatch):
    see = Samples.see
    monkeypatch.setattr(Samples, "see", lambda self, step, groups: 1 / 0 if step == 3 else see(self, step, groups))
    with pytest.raises(ZeroDivisionError):
        ran(tmp_path)
    monkeypatch.setattr(Samples, "see", see)
    out = ran(tmp_path)
    for name in ("samples.jsonl", "samples.html", "curve.csv", "episodes.jsonl"):
        assert (out / name).read_bytes() == (learned[0] / "artifacts/rl" / name).read_bytes(), name


def test_what_is_learned_does_not_depend_on_what_is_kept(learned, tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.models.samples.shown", lambda world, steps: None)
    out = ran(tmp_path)
    assert not (out / "samples.html").exists()
    for name in ("curve.csv", "episodes.jsonl", "model/model.safetensors"):
        assert (out / name).read_bytes() == (learned[0] / "artifacts/rl" / name).read_bytes(), name


def played(world, family, samples=2):
    _, player = actor(world, seed=1, sampling=Sampling(), max_steps=50)
    return player.play(seeds(6, seed=0, family=family), samples, 3)


def test_views_are_grey_where_the_reward_sees_them_filled():
    world = views(**TINY)
    (row, *_) = kept(world, played(world, "views"))
    sample = played(world, "views")[0].rollouts[0].info["sample"]
    shown_ = np.stack([pixels(url)[..., 0] for url in row["messages"][1]["pictures"]])
    assert shown_.shape == (4, 8, 8)
    filled = np.clip((sample + 1) / 2, 0, 1).reshape(4, 8, 8)
    assert np.abs(shown_ - (255 - 215 * filled)).max() <= 0.5 + 1e-4


def kept(world, groups):
    samples = shown(world, 1)
    samples.see(0, groups)
    return samples.rows


def test_only_the_first_prompts_are_kept():
    world = sprites(**TINY)
    assert len({r["group"] for r in kept(world, played(world, "sprites"))}) == PROMPTS


def test_a_point_is_red_where_it_is():
    picture = _drawn.plane(np.array([0.4, -0.8]))
    y, x = np.nonzero((picture == (220, 50, 50)).all(2))
    assert (x.mean(), y.mean()) == pytest.approx((95 * 1.6 / 2.4, 95 * 2.0 / 2.4), abs=0.6)
    assert kept(modes(**TINY), played(modes(**TINY), "modes"))[0]["messages"][0]["content"] == "a point"


def test_a_molecule_is_drawn_with_its_atoms_and_said_in_symbols():
    world = molecules(**TINY, latent=2)
    groups = played(world, "molecules")
    for row, r in zip(kept(world, groups), [r for g in groups[:PROMPTS] for r in g.rollouts], strict=True):
        symbols = [int(s.ids[0]) for s in r.segments[1:]]
        assert parsed(row["said"]) == symbols
        wanted = made(symbols)
        bound = chemistry.affinity(
            wanted, chemistry.protein_of(world.start(r.problem.args["seed"])[0].protein)
        )  # the letters asked for are those that pay
        assert row["parts"]["affinity"] == pytest.approx(bound if wanted.atoms else 0.0)
        assert np.array_equal(pixels(row["messages"][1]["pictures"][0]), _drawn.molecule(wanted))
        letters = row["messages"][0]["content"].removeprefix("a molecule for the protein ").split(", ")
        protein = chemistry.protein_of(world.start(r.problem.args["seed"])[0].protein)
        assert [_drawn.LETTERS.index(k) for k in letters] == list(protein)


@pytest.mark.parametrize(
    "text", ["[C]", "[C][=C][O]", "[C][Branch][N][C][Branch][F][C][=O]", "[C][C][C][C][C][Ring][O]"]
)
def test_every_atom_of_a_molecule_is_seen_and_bonds_are_about_as_long(text):
    m = made(parsed(text))
    picture = _drawn.molecule(m)
    for element, colour in _drawn.ATOMS.items():
        assert bool((picture == colour).all(2).any()) == (element in m.atoms)
    x = _drawn._laid_out(len(m.atoms), [(a, b) for a, b, _ in m.bonds])
    lengths = [np.linalg.norm(x[a] - x[b]) for a, b, _ in m.bonds]
    apart = [np.linalg.norm(x[a] - x[b]) for a in range(len(x)) for b in range(a)]
    assert all(0.6 < length < 1.4 for length in lengths) and min(apart, default=1) > 0.6


def test_worlds_of_plain_actions_have_nothing_to_show():
    assert shown(key_door(), 4) is None


def test_a_world_of_ones_own_draws_its_samples():
    class Own(Sprites):
        def pictures(self, sample):
            return [np.full((2, 2, 3), 7, np.uint8)]

    world = sprites(**TINY)
    groups = played(world, "sprites")
    own = Own(**{k: getattr(world, k) for k in world.__dataclass_fields__})
    assert (pixels(kept(own, groups)[0]["messages"][1]["pictures"][0]) == 7).all()
    monkey = replace(own)
    object.__setattr__(monkey, "pictures", lambda sample: [sample])
    with pytest.raises(
        UserError, match=r"rl\.control: the world's function `pictures` gave a picture of shape \(432,\)"
    ):
        kept(monkey, groups)
