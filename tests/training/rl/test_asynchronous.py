"""Sampling beside learning: who may start, what is in flight, that nothing is lost or preferred, and what the simulator
says."""

import copy
import csv
import shutil
import signal
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import small
import tiny
import torch

from synth.types import Message, Problem, Sampling, Scored
from tasks.storage.checkpoint import Checkpoints
from training.learner.learner import Learner, Optim, token_stats
from training.learner.loop import Round, run
from training.learner.pack import Row, pack, rollout_rows
from training.learner.profile import MEASURED
from training.rl.advantage.reinforce import reinforce
from training.rl.ahead import ONE_OFF, SYNC, Ahead, Following, Mailbox, back, plain, simulate
from training.rl.asynchrony.streamed import streamed
from training.rl.curriculum.success_band import success_band
from training.rl.experience import Experience
from training.rl.filter.spread import spread
from training.rl.objective import PolicyObjective
from training.rl.policy_loss.clip import clip
from training.rl.ratio.token import token
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

STREAMED = streamed(staleness=2)
MODES = {"sync": SYNC, "one_off": ONE_OFF, "streamed": STREAMED}


class Asking:
    """Three turns with a tool between; the score is the share of even tokens. `pause()` is called in the tool."""

    def __init__(self, pause=lambda: None, turns=3):
        self.pause, self.turns = pause, turns

    def start(self, problem, tools):
        return {"calls": 0, "even": 0, "n": 1}, list(problem.prompt)

    def step(self, state, text):
        self.pause()
        state["calls"] += 1
        state["even"] += sum(ord(c) % 2 == 0 for c in text)
        state["n"] += len(text)
        if state["calls"] < self.turns:
            return [Message(role="tool", content="Norvia ?")], False, None
        return [], True, Scored(value=state["even"] / state["n"], parts={"n": float(state["n"])})


class Cut(TorchSampler):
    """Turns that the limit cuts count as ended: a model of nothing hardly ever ends one itself."""

    def open(self, prompts, seeds):
        session = super().open(prompts, seeds)
        generate = session.generate
        session.generate = lambda sampling: [replace(s, stop="end") for s in generate(sampling)]
        return session


def problems(n=6):
    return [
        Problem.make(prompt=f"{i} ?", answer="1", verifier="exact", env="asking", family="f", split="train")
        for i in range(n)
    ]


def experience(model, *, pause=lambda: None, say=None, **more):
    """Of the real sampler on `model`, or of a scripted one."""
    source = tiny.Scripted(say)
    sampler = Cut(model, source.renderer.end_id) if say is None else source
    if say is not None:
        source.model = model
    knobs = {
        "problems": problems(),
        "advantage": reinforce,
        "curriculum": success_band,
        "prompts_per_step": 2,
        "samples_per_prompt": 2,
        "seed": 3,
        "player": Player(
            sampler=sampler,
            renderer=source.renderer,
            envs={"asking": Asking(pause)},
            sampling=Sampling(max_tokens=6),
            max_tokens=200,
        ),
    }
    return Experience(**knobs | more)


def trained(how, steps=5, *, kill=0, kept=None, watch=None, **more):
    """Weights and metrics of a run; `how` is a Mode, or None for the plain loop. `kill`: stop behind that step, its
    state in `kept`."""
    policy = tiny.build(seed=1)
    learner = Learner(policy, Optim(lr=3e-3, warmup=0, steps=steps))
    objective = PolicyObjective(ratio=token, policy_loss=clip)
    source = experience(policy if how is None else copy.deepcopy(policy), **more)
    ahead = None if how is None else Ahead(source, policy, how, steps)
    done, rows, versions = 0, [], []
    if kept is not None and (latest := kept.latest()):
        done, state = latest
        learner.load_state(state["learner"])
        (ahead or source).load_state(state["source"])
    try:
        rounds = [
            Round(
                name="rl",
                role="policy",
                source=ahead or source,
                objective=objective,
                prepare=objective.prepare,
                steps=steps,
            )
        ]
        for _, _, metrics in run(rounds, {"policy": learner}, done):
            rows.append({k: v for k, v in metrics.items() if not k.endswith(MEASURED)})
            versions.append(
                sorted({s.version for g in source.groups for r in g.rollouts for s in r.segments if s.role == "model"})
            )
            if watch is not None:
                watch(source)
            done += 1
            if kill == done:
                kept.save(done, {"learner": learner.state(), "source": (ahead or source).state()})
                break
    finally:
        if ahead is not None:
            ahead.close()
    return {k: v.clone() for k, v in policy.state_dict().items()}, rows, versions


def same(a, b):
    return all(torch.equal(a[k], b[k]) for k in a)


# --- modes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"filters": [spread], "refill": 2}], ids=["plain", "filtered"])
def test_sync_is_the_plain_loop_bit_for_bit(more):
    (want, rows, versions), (got, other, seen) = trained(None, **more), trained(SYNC, **more)
    assert same(want, got) and versions == seen == [[i] for i in range(5)]
    assert [{k: v for k, v in r.items() if not k.startswith("lag")} for r in other] == rows
    assert not same(want, tiny.build(seed=1).state_dict()), "something was learned"


def test_one_off_samples_with_the_weights_of_the_step_before_and_is_repeatable():
    (one, rows, versions), (two, again, _) = trained(ONE_OFF), trained(ONE_OFF)
    assert versions == [[0], [0], [1], [2], [3]] and same(one, two) and rows == again
    assert [r["lag"] for r in rows] == [0, 1, 1, 1, 1]
    assert not same(one, trained(SYNC)[0])


def test_streamed_is_bounded_in_order_and_whole():
    """Whatever the threads do: every step is trained once, in order, and no token is older than `staleness` updates."""
    steps = []
    _, rows, versions = trained(STREAMED, 8, watch=lambda e: steps.append([g.id.split("/")[0] for g in e.groups]))
    assert steps == [[str(i)] * 2 for i in range(8)]
    assert (
        all(0 <= i - v <= 2 for i, seen in enumerate(versions) for v in seen) and max(r["lag_max"] for r in rows) <= 2
    )


@pytest.mark.parametrize(("elsewhere", "each"), [(False, 2), (True, 4)])
def test_sampler_and_learner_share_the_threads_of_one_cpu(elsewhere, each, monkeypatch):
    """Half for each of the two while they work side by side, all again afterwards; a sampler in another process takes
    none."""
    before, seen, loss = torch.get_num_threads(), {}, Learner._loss

    class Seen(Cut):
        def open(self, prompts, seeds):
            seen.setdefault("sampler", set()).add(torch.get_num_threads())
            return super().open(prompts, seeds)

    def learning(self, *args):
        seen.setdefault("learner", set()).add(torch.get_num_threads())
        return loss(self, *args)

    Seen.elsewhere = elsewhere
    monkeypatch.setattr("test_asynchronous.Cut", Seen)
    monkeypatch.setattr(Learner, "_loss", learning)
    torch.set_num_threads(4)
    try:
        trained(ONE_OFF, 3)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
    assert seen == {"sampler": {each}, "learner": {each}}


def test_a_staleness_of_nothing_is_refused():
    with pytest.raises(ValueError, match="staleness is 0: sampling ahead needs 1 or more"):
        streamed(staleness=0)


def test_the_learners_own_weights_are_refused():
    policy = tiny.build()
    with pytest.raises(ValueError, match="the learner's own weights"):
        Ahead(experience(policy), policy, ONE_OFF, 3)


# --- a conversation across updates
# --------------------------------------------------------------------------------------


def test_a_conversation_goes_on_with_newer_weights_and_its_log_probs_are_those_of_who_wrote():
    old, new = tiny.build(seed=1, init_range=0.2), tiny.build(seed=2, init_range=0.2)
    mailbox = Mailbox(old)
    mailbox.send(old, 0)
    sampler = TorchSampler(copy.deepcopy(old), tiny.tokenizer().eos_token_id, version=-1)
    session = Following(sampler, mailbox).open(tiny.ids(5, 7), [1, 2])
    rows = [[p] for p in tiny.ids(5, 7)]
    for told, send in ((tiny.ids(3, 4), True), (tiny.ids(2, 2), False), (None, False)):
        for row, segment in zip(rows, session.generate(Sampling(max_tokens=5)), strict=True):
            row.append(segment)
        if send:
            mailbox.send(new, 1)
        if told:
            session.observe([0, 1], told)
            for row, x in zip(rows, told, strict=True):
                row.append(x)
    for row in rows:
        assert [s.version for s in row if not isinstance(s, np.ndarray)] == [0, 1, 1]
        for i, s in enumerate(row):
            if isinstance(s, np.ndarray):
                continue
            ids = np.concatenate([x if isinstance(x, np.ndarray) else x.ids for x in row[: i + 1]])
            batch = pack([Row(ids=ids, trainable=np.arange(len(ids)) >= len(ids) - len(s.ids))])
            with torch.no_grad():
                logp = token_stats((old, new)[s.version], batch).logp[batch.trainable].numpy()
            np.testing.assert_allclose(logp, s.logp, atol=1e-4)


def test_without_newer_weights_following_changes_nothing():
    source = TorchSampler(tiny.build(seed=1), tiny.tokenizer().eos_token_id)
    turns = []
    for sampler in (source, Following(source, None)):
        session = sampler.open(tiny.ids(5, 7), [1, 2])
        first = session.generate(Sampling(max_tokens=5))
        session.observe([1], tiny.ids(3))
        turns.append([(s.ids.tolist(), s.logp.tolist()) for s in (*first, *session.generate(Sampling(max_tokens=5)))])
    assert turns[0] == turns[1]


# --- nothing is preferred
# -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", MODES)
def test_trained_lengths_are_generated_lengths(how):
    """Long answers come late, for their tools are slow: they are waited for. What ends first, taken first, would be
    short."""
    lengths = Counter()

    def say(seen, seed):
        return "so " * (1 + seed % 9)

    slow = lambda: time.sleep(0.002)  # noqa: E731
    policy = tiny.build(seed=1)
    source = experience(copy.deepcopy(policy), say=say, pause=slow, prompts_per_step=4)
    generated, play = [], source.player.play
    with Ahead(source, policy, MODES[how], 6) as ahead:
        collect = source.collect
        source.collect = lambda step: generated.append(collected := collect(step)) or collected
        for step in range(6):
            batches, _ = ahead(step)
            for batch in batches:
                assert batch.rows == 8
            lengths.update(r.n_model for g in source.groups for r in g.rollouts)
    assert play is not None
    trained_on = Counter({k: v for k, v in lengths.items()})
    generated_lengths = Counter(r.n_model for c in generated[:6] for g in c.played for r in g.rollouts)
    assert generated_lengths == trained_on and len(generated_lengths) > 3


# --- in flight
# ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sync", "one_off"])
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_weights(how, tmp_path):
    want, rows, versions = trained(MODES[how], 6)
    kept = Checkpoints(tmp_path)
    _, first, seen = trained(MODES[how], 6, kill=3, kept=kept)
    got, rest, later = trained(MODES[how], 6, kept=kept)
    assert same(want, got) and first + rest == rows and seen + later == versions


def test_what_was_sampled_ahead_is_in_the_checkpoint_and_is_not_sampled_again(tmp_path):
    begun, order, kept = [], [], Checkpoints(tmp_path)

    def counted(**more):
        return trained(STREAMED, 8, kept=kept, watch=lambda e: order.append([g.id for g in e.groups]), **more)

    collect = Experience.collect
    Experience.collect = lambda self, step: begun.append(step) or collect(self, step)
    try:
        counted(kill=4)
        held = [c["step"] for c in kept.latest()[1]["source"]["waiting"]]
        dead, begun = begun, []
        counted()
    finally:
        Experience.collect = collect
    assert held == list(range(4, 4 + len(held))), "the oldest first"
    assert begun == list(range(4 + len(held), 8)), "what is in the checkpoint is not sampled again"
    assert [g[0].split("/")[0] for g in order] == [str(i) for i in range(8)], "each step is trained once"
    assert dead[: 4 + len(held)] == list(range(4 + len(held)))


def test_rollouts_come_back_as_they_were():
    source = experience(tiny.build(seed=1))
    collected = source.collect(0)
    (again,) = back(plain([collected.played[0]]))
    assert [r.ids.tolist() for r in again.rollouts] == [r.ids.tolist() for r in collected.played[0].rollouts]
    assert (
        again.rollouts[0].info == collected.played[0].rollouts[0].info
        and again.rollouts[0].problem == collected.played[0].rollouts[0].problem
    )
    assert torch.equal(
        pack(rollout_rows([again], [[1.0, 2.0]])).columns["sampling_logp"],
        pack(rollout_rows([collected.played[0]], [[1.0, 2.0]])).columns["sampling_logp"],
    )
    with pytest.raises(TypeError, match="holds a object, which a checkpoint cannot keep"):
        plain({"info": object()})


def test_what_breaks_while_sampling_breaks_the_run():
    def broken():
        raise ValueError("the tool is broken")

    with pytest.raises(ValueError, match="the tool is broken"):
        trained(ONE_OFF, pause=broken)
    assert not [t for t in threading.enumerate() if t.name == "sampler"]


def test_close_ends_the_sampling_at_its_next_turn():
    policy = tiny.build(seed=1)
    with Ahead(experience(copy.deepcopy(policy)), policy, STREAMED, 1000) as ahead:
        ahead(0)
    assert not [t for t in threading.enumerate() if t.name == "sampler"]


@pytest.mark.parametrize("how", [ONE_OFF, STREAMED])
def test_a_sampler_that_hangs_is_waited_for_no_longer_than_the_limit(how, capsys):
    policy, goes_on = tiny.build(seed=1), threading.Event()
    ahead = Ahead(experience(copy.deepcopy(policy), pause=lambda: goes_on.wait(60)), policy, how, 3, limit=0.3)
    began = time.monotonic()
    with pytest.raises(
        TimeoutError, match=r"step 0 was waited for, and the sampler of step 0 has not begun another turn"
    ):
        ahead(0)
    with pytest.raises(TimeoutError, match="what a checkpoint holds of the next steps was waited for"):
        ahead.state()
    ahead.close()
    assert time.monotonic() - began < 20
    assert capsys.readouterr().err.count("this process ends without it") == 1
    goes_on.set()
    ahead._thread.join(60)
    assert not ahead._thread.is_alive()


def test_a_sampler_that_waited_for_the_learner_is_not_late(capsys):
    """However long a step of the learner takes: only turns have a limit."""
    policy = tiny.build(seed=1)
    with Ahead(experience(copy.deepcopy(policy)), policy, ONE_OFF, 9, limit=5.0) as ahead:
        for step in range(3):
            ahead(step)
            ahead.state()
            ahead._heard -= 100.0
    assert "ends without" not in capsys.readouterr().err and not ahead._thread.is_alive()


# --- many conversations
# -------------------------------------------------------------------------------------------------


def test_tools_of_a_batch_are_at_work_together_and_change_nothing():
    """As many as `calls` at a time, in every batch; the rollouts are those of one after the other. A tool waits until as
    many are at work as the test wants to see, once."""
    changed, at_work, most, want = threading.Condition(), [0], [0], [1]

    def pause():
        with changed:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            changed.notify_all()
            assert changed.wait_for(lambda: most[0] >= want[0], timeout=120)
            at_work[0] -= 1

    def rollouts(together, **more):
        most[0], want[0] = 0, together
        source = experience(tiny.build(seed=1), pause=pause)
        player = Player(
            **{
                **{f: getattr(source.player, f) for f in ("sampler", "renderer", "envs", "sampling", "max_tokens")},
                **more,
            }
        )
        return [r.ids.tolist() for g in player.play(problems(), 4, "s") for r in g.rollouts]

    alone = rollouts(1, batch_size=6)
    assert most == [1]
    assert rollouts(4, batch_size=6, calls=4) == alone and most == [4]
    assert rollouts(4, batch_size=6, calls=3, concurrent_batches=2) == alone and 4 <= most[0] <= 6, (
        "more than one batch has"
    )


# --- the simulator
# ------------------------------------------------------------------------------------------------------


def test_the_simulator_by_hand():
    """Two steps of (2, 1): one after the other 6. One ahead: samples end at 2 and 4, updates at 3 and 5."""
    assert simulate([2, 2], [1, 1], 0).seconds == 6 and simulate([2, 2], [1, 1], 0).hidden == 0
    assert simulate([2, 2], [1, 1], 1).seconds == 5 and simulate([2, 2], [1, 1], 1).hidden == 0.5
    # (1, 3), (5, 1), (1, 1): samples end at 1, 6, 7 and, one ahead, the third may begin when the first is trained (4):
    # no wait.
    assert simulate([1, 5, 1], [3, 1, 1], 1).seconds == 8
    # Slow learner: sample s waits until update s - 2 is done. Samples end at 1, 2, 5, 8 and updates at 4, 7, 10, 13.
    assert simulate([1] * 4, [3] * 4, 1).seconds == 13


def test_sampling_ahead_hides_most_of_the_smaller_part():
    rng = np.random.default_rng(0)
    sampling, learning = rng.lognormal(0, 0.5, 400), rng.lognormal(0, 0.3, 400)
    hidden = [simulate(sampling, learning, s).hidden for s in (0, 1, 2, 4)]
    assert hidden[0] == pytest.approx(0, abs=1e-9) and hidden == sorted(hidden) and hidden[2] > 0.8


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_the_simulator_is_what_the_threads_do(staleness):
    """Order of events rather than times: a step begins only when the simulator says that it may."""
    rng = np.random.default_rng(staleness)
    a, b = rng.random(30), rng.random(30)
    end_a, end_b = [0.0], [0.0]
    for s in range(30):
        begin = max(end_a[-1], end_b[s - staleness] if s >= staleness else 0.0)
        end_a.append(begin + a[s])
        end_b.append(max(end_a[-1], end_b[-1]) + b[s])
    assert simulate(a, b, staleness).seconds == pytest.approx(end_b[-1])


# --- the stage
# ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained_sft(tmp_path_factory):
    root = tmp_path_factory.mktemp("asynchrony") / "project"
    small.write_project(root)
    for stage in ("kb", "questions", "problems", "demonstrations", "sft"):
        small.run(root, stage)
    return root


def with_rl(trained_sft, root, monkeypatch, **knobs):
    shutil.copytree(trained_sft, root)
    monkeypatch.setitem(small.SIZES, "rl", {**small.SIZES["rl"], **knobs})
    small.write_project(root)
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "asynchrony", [{"piece": "one_off"}, {"piece": "streamed", "staleness": 2}], ids=lambda o: o["piece"]
)
def test_the_stage_rl_killed_and_resumed(trained_sft, tmp_path, monkeypatch, asynchrony):
    """One step off: the bytes of a run that was not killed. Streamed: every step trained once, in order, and none older
    than it may be."""
    engine = {"tool_calls": 4, "concurrent_batches": 2}
    project = with_rl(trained_sft, tmp_path / "a", monkeypatch, asynchrony=asynchrony, engine=engine)
    small.run(project, "rl", fault="train.step:5=kill", expect=-signal.SIGKILL)
    stderr = small.run(project, "rl")
    assert "going on after step 4 of 6" in stderr
    rows = list(csv.DictReader((project / "artifacts/rl/curve.csv").open()))
    assert [r["step"] for r in rows] == [str(i) for i in range(6)] and all(r["rollouts"] == "4" for r in rows)
    assert all(0 <= float(r["lag_max"]) <= asynchrony.get("staleness", 1) for r in rows)
    if asynchrony["piece"] == "one_off":
        whole = with_rl(trained_sft, tmp_path / "b", monkeypatch, asynchrony=asynchrony, engine=engine)
        small.run(whole, "rl")
        assert small.outputs(project, "rl") == small.outputs(whole, "rl")
