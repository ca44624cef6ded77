"""Weights that are split over processes against one process that holds them all: the same losses, norms and weights; and
a state that knows no number of processes."""

import learned
import numpy as np
import pytest
import tiny
import torch
from ranks import together
from safetensors.torch import load_file

from tasks.core.errors import UserError
from tasks.planning.places import check_shards
from tasks.storage.checkpoint import Checkpoints
from training.learner.learner import Learner, Optim, nll
from training.learner.rows import weighted
from training.learner.shard import is_split, split, whole
from training.learner.world import ONE
from training.model.lora import adapt
from training.model.native import build

# Float32 sums in another order, after four steps of a rate of 1e-3; in bfloat16 a rounding more is seen at once.
ALLOWED = {"bfloat16": (2e-3, 5e-3)}
METRICS, WEIGHTS, WRONG = 1e-5, 5e-5, 1e-3
KINDS = tuple(learned.KINDS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    two = together(2, _all, folder=tmp_path_factory.mktemp("two"), shards=2)
    assert not [x for x in two if isinstance(x, str) or x is None], two
    return two


def _all(world):
    return {k: learned.learned(world, k) for k in KINDS} | {"wrong": learned.learned(world, "sft", mean=True)}


def apart(one, other):
    """The largest difference of losses and norms (relative), and of weights."""
    numbers = [np.array([[m["loss"], m["grad_norm"]] for m in x[0]]) for x in (one, other)]
    metrics = float((np.abs(numbers[0] - numbers[1]) / np.maximum(0.1, np.abs(numbers[0]))).max())
    return metrics, max(float(np.abs(x - y).max()) for x, y in zip(one[1], other[1], strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_split_learn_what_whole_ones_learn(kind, runs):
    with pytest.MonkeyPatch.context() as plain:
        if kind == "bfloat16":  # compiled layers round elsewhere, and split weights have none
            plain.setattr(build, "_made", lambda: (None, "turned off for a test"))
        one = learned.learned(ONE, kind)
    most = ALLOWED.get(kind, (METRICS, WEIGHTS))
    metrics, weights = apart(one, runs[0][kind])
    assert metrics <= most[0] and weights <= most[1], (metrics, weights)
    assert all(np.array_equal(x, y) for x, y in zip(runs[0][kind][1], runs[1][kind][1], strict=True))
    if kind == "sft":
        assert apart(one, runs[0]["wrong"])[0] > WRONG, "a mean per process would not be seen"


def test_a_number_that_is_none_ends_every_process_with_the_same_sentence_where_weights_are_split(tmp_path):
    """The row lies in the share of one of them."""
    errors = together(2, learned.learned, "sft", False, 400, 24, 0, folder=tmp_path, shards=2)
    assert errors[0] == errors[1]
    assert errors[0].startswith("FloatingPointError: the gradient norm is nan at step 0: lower the learning rate")


def test_two_groups_of_two_that_each_hold_the_whole_learn_the_same(tmp_path):
    four = together(4, learned.learned, "grpo", folder=tmp_path, shards=2)
    assert not [x for x in four if isinstance(x, str) or x is None], four
    metrics, weights = apart(learned.learned(ONE, "grpo"), four[0])
    assert metrics <= METRICS and weights <= WEIGHTS, (metrics, weights)


def _learner(world, kind):
    torch.manual_seed(0)
    model = tiny.build(hidden=32, layers=2)
    model = model.to(torch.bfloat16) if kind == "bfloat16" else model
    optim = Optim(kind="muon" if kind == "muon" else "adamw", warmup=1, matrix_lr=0.01)
    return Learner(model, optim, world=world)


def _step(learner, step):
    return learner.step(weighted(learned.rows(step), "cpu"), nll, tokens_per_microbatch=400)["loss"]


def _flat(state):
    """Name -> bytes of every tensor of a learner's state."""
    tensors = {f"model {n}": t for n, t in state["model"].items()}
    tensors |= {f"master {i}": t for i, t in enumerate(state["master"])}
    for o, saved in enumerate(state["optimizers"]):
        tensors |= {f"{o} {i} {k}": v for i, held in saved["state"].items() for k, v in held.items()}
    return {n: whole(t.detach()).float().numpy().tobytes() for n, t in tensors.items()}


def _begun(world, kind, folder):
    """Two steps, a checkpoint, and a third step."""
    learner = _learner(world, kind)
    for step in range(2):
        _step(learner, step)
    if world.first or world.mesh is not None:
        Checkpoints(folder).save(2, learner.state(), world)
    held = sum(p.to_local().numel() if is_split(p) else p.numel() for p in learner.model.parameters())
    world.gather(None)
    return _step(learner, 2), _flat(learner.state()), held


def _gone_on(world, kind, folder):
    """What was read, and a third step from it."""
    learner = _learner(world, kind)
    learner.load_state(Checkpoints(folder).latest(world)[1])
    read = _flat(learner.state())
    return read, _step(learner, 2), _flat(learner.state())


@pytest.mark.parametrize("kind", ["sft", "muon", "bfloat16"])
def test_a_checkpoint_knows_no_number_of_processes(kind, tmp_path):
    for name in ("meet", "two", "one"):
        (tmp_path / name).mkdir()
    begun = together(2, _begun, kind, tmp_path / "two", folder=tmp_path / "meet", shards=2)
    alone = _begun(ONE, kind, tmp_path / "one")
    assert begun[0][2] + begun[1][2] == alone[2], "each holds a share"
    again = together(2, _gone_on, kind, tmp_path / "two", folder=tmp_path / "meet", shards=2)
    assert again[0][1:] == begun[0][:2], "the same bytes as without a pause"
    saved = _flat(Checkpoints(tmp_path / "two").latest()[1])
    fewer = _gone_on(ONE, kind, tmp_path / "two")
    assert fewer[0] == saved == again[0][0]
    assert fewer[1] == pytest.approx(begun[0][0], rel=2e-3 if kind == "bfloat16" else 1e-5)
    if kind == "sft":
        three = together(3, _gone_on, kind, tmp_path / "two", folder=tmp_path / "meet", shards=3)
        assert three[0][0] == saved and three[0][1] == pytest.approx(begun[0][0], rel=1e-5)
    more = together(2, _gone_on, kind, tmp_path / "one", folder=tmp_path / "meet", shards=2)
    assert more[0][0] == _flat(Checkpoints(tmp_path / "one").latest()[1])
    assert more[0][1] == pytest.approx(alone[0], rel=2e-3 if kind == "bfloat16" else 1e-5)


def _saved(world, kind, folder, full=False):
    """What writing a checkpoint says, in a process whose disk is full after the first shares, or not."""
    learner = _learner(world, kind)
    _step(learner, 0)
    with pytest.MonkeyPatch.context() as patched:
        if full and world.rank == 1:
            patched.setattr("safetensors.torch.save", _no_space)
        try:
            Checkpoints(folder).save(1, learner.state(), world)
        except OSError as e:
            return e.errno
    world.gather(None)
    return sum(p.to_local().numel() for p in learner.model.parameters())


def _no_space(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("ranks", "shards"), [(2, 2), (4, 2)])
def test_each_process_writes_its_share_and_nobody_the_whole(ranks, shards, tmp_path):
    (tmp_path / "meet").mkdir()
    held = together(ranks, _saved, "sft", tmp_path / "kept", folder=tmp_path / "meet", shards=shards)
    (step,) = Checkpoints(tmp_path / "kept").found()
    files = [load_file(f) for f in sorted((step / "shares").iterdir())]
    counts = [sum(t.numel() for t in f.values()) for f in files]
    assert len(files) == ranks and 3 * sum(held[:shards]) == sum(counts), "weights and two moments, once"
    assert max(counts) < 0.6 * sum(counts)
    assert sum(t.numel() for t in load_file(step / "tensors.safetensors").values()) < 1e5, "counts and the like alone"
    (step / "shares" / files_of(step)[1]).write_bytes(b"")
    assert Checkpoints(tmp_path / "kept").sound() is None, "a damaged share is a damaged checkpoint"


def files_of(step):
    return sorted(f.name for f in (step / "shares").iterdir())


def test_a_full_disk_of_one_process_is_that_error_in_all_and_no_checkpoint(tmp_path):
    (tmp_path / "meet").mkdir()
    codes = together(2, _saved, "sft", tmp_path / "kept", True, folder=tmp_path / "meet", shards=2)
    assert codes == [28, 28] and not Checkpoints(tmp_path / "kept").found()


def test_what_cannot_be_split_is_said_in_a_sentence():
    model = tiny.build(hidden=32, layers=2)
    with pytest.raises(UserError, match=r"rl.shards is 2, and rl.learners is 3: .* set rl.shards to 3"):
        check_shards("rl", 3, 2)
    check_shards("rl", 4, 2)
    adapt(model.to(torch.bfloat16), {"rank": 2}, seed=0)
    for p in model.parameters():
        p.data = p.data.float() if p.requires_grad else p.data
    with pytest.raises(ValueError, match="weights of bfloat16 and float32 cannot be split: load it in one dtype"):
        split(model, ONE)
    model.experts = torch.nn.Parameter(torch.zeros(2, 3, 4))
    with pytest.raises(ValueError, match="experts of a Qwen3ForCausalLM cannot be split yet: leave shards out"):
        split(model, ONE)
