"""Players: environments in other processes say the same, whichever process ends, hangs or fails."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import afar
import psutil
import pytest
from played import NAMES, player, problems, shown

from synth.types import Scored, Unscorable
from training.rollout.players import TRIES, Players


@pytest.fixture(scope="module")
def two():
    with Players(partial(afar.built, ("all", "kept", "fails", "lots")), 2) as players:
        yield players


@pytest.fixture(scope="module")
def alone():
    return shown(player(None).play(problems(), 3, "seed"))


def test_players_say_what_one_process_says(two, alone):
    assert shown(player(two).play(problems(), 3, "seed")) == alone
    assert shown(player(two, batch_size=5, concurrent_batches=2).play(problems(), 3, "seed")) == alone
    assert len({str(x) for x in alone}) == 12 and len({x[3].value for x in alone}) > 1, "nothing to tell apart"


def test_a_killed_player_costs_nothing(two, alone, tmp_path, capfd):
    turns, before = [], list(two.pids)

    def say(seen, seed):
        if len(turns) == 18:  # in the second turn of the batch
            os.kill(before[0], signal.SIGKILL)
            time.sleep(0.2)
        turns.append(seed)
        return f"{seed % 97} and {len(seen)}"

    assert shown(player(two, say).play(problems(), 3, "seed")) == alone
    assert len(turns) == 12 * afar.TURNS, "nothing is sampled twice"
    assert two.pids[0] != before[0] and two.pids[1] == before[1]
    assert "player 1 of 2 ended (SIGKILL)" in capfd.readouterr().err


def test_an_environment_that_is_no_function_is_not_played_on(two):
    turns = []

    def say(seen, seed):
        if len(turns) == 3:
            for pid in two.pids:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        turns.append(seed)
        return "a turn"

    (group,) = player(two, say, ("lots",)).play(problems("lots", NAMES[:1]), 2, 1)
    assert all("said something else" in r.score.reason for r in group.rollouts)


def test_what_an_environment_raises_is_raised_here(two):
    with pytest.raises(LookupError, match="there is no such thing") as e:
        player(two, kinds=("fails",)).play(problems("fails"), 1, 1)
    assert "afar.py" in "".join(e.value.__notes__)


def test_an_episode_that_was_cut_is_forgotten(two):
    cut = player(two, lambda seen, seed: "and so on ...", ("kept",))
    for _ in range(4):
        groups = cut.play(problems("kept"), 2, 1)
    kept = [int(r.info["messages"][1].content.split()[0]) for g in groups for r in g.rollouts]
    assert max(kept) <= 8, "of 32 episodes, 8 at a time"
    assert all(r.score.parts == {"truncated": 1.0} for g in groups for r in g.rollouts)


def test_an_episode_that_ends_its_process_is_left_out_and_no_other(capfd):
    def say(seen, seed):
        return "<kill>" if "Karo" in seen else f"{seed % 97}"

    with Players(partial(afar.built, ("kills",)), 2) as players:
        groups = player(players, say, ("kills",)).play(problems("kills"), 2, 1)
    scores = [[r.score for r in g.rollouts] for g in groups]
    assert all(
        isinstance(s, Unscorable) and s.reason == f"player_lost: kills ended {TRIES} processes (SIGKILL)"
        for s in scores[2]
    )
    assert all(isinstance(s, Scored) for k in (0, 1, 3) for s in scores[k])
    assert capfd.readouterr().err.count("(SIGKILL)") == 2 * TRIES


def test_a_player_that_does_not_answer_is_ended(capfd):
    def say(seen, seed):
        return "<hang>" if "Karo" in seen else f"{seed % 97}"

    with Players(partial(afar.built, ("hangs",)), 1, wait=1.0) as players:
        groups = player(players, say, ("hangs",)).play(problems("hangs"), 1, 1)
        pids = players.pids
    reasons = [getattr(g.rollouts[0].score, "reason", "") for g in groups]
    assert reasons == ["", "", "player_late: waited 1 s for an answer of the environment hangs", ""]
    assert not any(psutil.pid_exists(p) for p in pids), "nobody is left"


def test_what_cannot_be_built_is_said():
    with Players(partial(afar.built, fails="no sandbox works here"), 1) as players:
        with pytest.raises(ValueError, match="no sandbox works here"):
            player(players).play(problems(), 1, 1)
    with pytest.raises(ValueError, match="at least one"):
        Players(afar.built, 0)


STARTER = """
import afar, functools, time
from training.rollout.players import Players
if __name__ == "__main__":
    with Players(functools.partial(afar.built, ("hangs",)), 2) as players:
        import threading
        from synth.types import Message, Problem
        problem = Problem.make(prompt="?", answer="", verifier="exact", args={"aliases": []}, env="hangs", family="f", split="train")
        state, _ = players.begin("hangs", problem)
        threading.Thread(target=players.turn, args=("hangs", state, "<hang>"), daemon=True).start()
        time.sleep(0.5)
        print(*players.pids, flush=True)
        time.sleep(60)
"""


def test_players_end_with_who_started_them(tmp_path):
    script = tmp_path / "starter.py"
    script.write_text(STARTER)
    path = os.pathsep.join([str(Path(__file__).parents[3]), str(Path(afar.__file__).parent)])
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as starter:
        assert starter.stdout is not None
        pids = [int(p) for p in starter.stdout.readline().split()]
        assert len(pids) == 2 and all(psutil.pid_exists(p) for p in pids)
        starter.kill()
    until = time.monotonic() + 20
    while any(psutil.pid_exists(p) for p in pids) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(psutil.pid_exists(p) for p in pids), "one waits, the other is in a turn: both end"
