"""Players on a Ray cluster say what those of this machine say, whatever ends on the way, and leave nobody behind."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import afar
import psutil
import pytest
import yaml
from played import player, problems, shown
from ports import free_port
from ray_cluster import PATIENCE, ray_cluster

from flows.cli import main
from synth.types import Scored, Unscorable
from tasks.core.errors import UserError
from tasks.models.ray_players import OnRay, cluster_of
from tasks.planning import plan
from tasks.runtime import cluster as clusters
from training.rollout.players import TRIES

CODE = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def alone():
    return shown(player(None).play(problems(), 3, "seed"))


def connected(cluster, kinds=("all",), n=2, **more):
    on = cluster_of(cluster.address, n, "rl.ray", CODE, Path("pyproject.toml"))
    on.connect()
    return OnRay(partial(afar.built, kinds), n, cluster=on, **more)


def actors(cluster):
    """The processes of the actors, and those that play inside them."""
    living = [node for node in cluster.nodes if node.poll() is None]
    every = [p for node in living for p in psutil.Process(node.pid).children(recursive=True)]
    seats = [p for p in every if p.status() != psutil.STATUS_ZOMBIE and "ray::Seat" in " ".join(p.cmdline())]
    return seats, [child for p in seats for child in p.children() if "spawn_main" in " ".join(child.cmdline())]


def gone(processes, seconds=20.0):
    """Whether all of them end in time."""
    return not psutil.wait_procs(processes, timeout=seconds)[1]


@pytest.mark.slow
def test_the_same_whoever_is_killed(cluster, alone, capfd):
    turns, victims = [], []

    def say(seen, seed):
        if len(turns) in (14, 18, 30):  # in the second and third turn of the batch
            seats, playing = actors(cluster)
            victim = {14: seats[0], 18: playing[-1], 30: psutil.Process(players.cluster.process.pid)}[len(turns)]
            victims.append(victim)
            victim.kill()
            psutil.wait_procs([victim], timeout=10)
        turns.append(seed)
        return f"{seed % 97} and {len(seen)}"

    with connected(cluster) as players:
        assert shown(player(players).play(problems(), 3, "seed")) == alone, "nobody was killed"
        seats, playing = actors(cluster)
        assert len(seats) == len(playing) == 2
        assert shown(player(players, say).play(problems(), 3, "seed")) == alone
        later, last = actors(cluster)
    assert len(turns) == 12 * afar.TURNS, "nothing is sampled twice"
    stderr = capfd.readouterr().err
    assert len(victims) == 3 and "(its Ray actor died)" in stderr and "(SIGKILL)" in stderr
    assert "(the process that speaks with Ray ended)" in stderr
    assert gone([*seats, *playing, *later, *last]), "nobody is left"
    assert actors(cluster) == ([], [])


def test_the_reasons_are_those_of_players_on_this_machine(cluster, capfd):
    def say(seen, seed):
        return "<kill>" if "Karo" in seen else "<hang>" if "Milbe" in seen else f"{seed % 97}"

    with connected(cluster, ("kills", "hangs"), wait=1.0) as players:
        posed = [*problems("kills")[:3], *problems("hangs")[3:]]
        groups = player(players, say, ("kills", "hangs")).play(posed, 1, 1)
    scores = [g.rollouts[0].score for g in groups]
    assert all(isinstance(s, Scored) for s in scores[:2])
    assert all(isinstance(s, Unscorable) for s in scores[2:])
    assert [s.reason for s in scores[2:]] == [
        f"player_lost: kills ended {TRIES} processes (SIGKILL)",
        "player_late: waited 1 s for an answer of the environment hangs",
    ]


def test_what_is_raised_there_is_raised_here(cluster, tmp_path):
    with connected(cluster, ("fails",), n=1) as players:
        with pytest.raises(LookupError, match="there is no such thing") as e:
            player(players, kinds=("fails",)).play(problems("fails"), 1, 1)
        assert "afar.py" in "".join(e.value.__notes__)
    with pytest.raises(UserError, match=r"has 2 CPUs, and 3 players take one each"):
        connected(cluster, n=3)
    on = cluster_of(cluster.address, 1, "rl.ray", CODE, Path("pyproject.toml"))
    on.connect()
    with pytest.raises(ValueError, match="no sandbox works here"):
        with OnRay(partial(afar.built, fails="no sandbox works here"), 1, cluster=on):
            raise AssertionError("it said so before anything was played")
    assert on.process is None
    (tmp_path / "plan.json").write_text("{}")
    on = cluster_of(cluster.address, 1, "rl.ray", tmp_path, Path("plan.json"))
    on.connect()
    (tmp_path / "plan.json").write_text("{ }")  # as on a machine with another copy
    with pytest.raises(UserError, match=r"of the Ray cluster has another plan.json in .* than this one"):
        OnRay(partial(afar.built, ("all",)), 1, cluster=on).__enter__()
    assert actors(cluster) == ([], [])


STARTER = """
import afar, functools, sys, threading, time
from pathlib import Path
from tasks.models.ray_players import OnRay, cluster_of
if __name__ == "__main__":
    on = cluster_of(sys.argv[1], 2, "rl.ray", Path(sys.argv[2]), Path("pyproject.toml"))
    on.connect()
    with OnRay(functools.partial(afar.built, ("hangs",)), 2, cluster=on) as players:
        from played import problems
        state, _ = players.begin("hangs", problems("hangs")[0])
        threading.Thread(target=players.turn, args=("hangs", state, "<hang>"), daemon=True).start()
        time.sleep(0.5)
        print("playing", flush=True)
        time.sleep(60)
"""


def test_nobody_is_left_where_the_starter_is_killed(cluster, tmp_path):
    script = tmp_path / "starter.py"
    script.write_text(STARTER)
    path = os.pathsep.join([str(CODE), str(Path(afar.__file__).parent)])
    with subprocess.Popen(
        [sys.executable, str(script), cluster.address, str(CODE)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as starter:
        assert starter.stdout is not None and starter.stdout.readline() == "playing\n"
        seats, playing = actors(cluster)
        beside = psutil.Process(starter.pid).children(recursive=True)
        assert len(seats) == len(playing) == 2 and beside
        starter.kill()
    assert gone([*seats, *playing, *beside]), "one waits, the other is in a turn: both end"


def test_an_address_that_does_not_answer_is_said_before_anything_is_spent(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    address = f"127.0.0.1:{free_port()}"
    assert main(["run", "--set", f"rl.ray={address}"]) == 2
    assert f"rl.ray: nobody answers at {address} within 5 s (Connection refused)" in capsys.readouterr().err
    assert not list(Path("artifacts").glob("*/card.json"))
    with pytest.raises(UserError, match="nobody answers at"):
        cluster_of(address, 1, "rl.ray", CODE, Path("pyproject.toml")).connect()
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="Ray is not installed"):
        clusters.check("auto", "rl.ray")


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        (
            {"set": {"rl": {"ray": "ray://head:10001"}}},
            "rl.ray is ray://head:10001, which is no address of a Ray cluster",
        ),
        ({"set": {"rl": {"ray": 6379}}}, "params.yaml: set.rl.ray must be str, not 6379"),
        (
            {"recipe": "lare", "set": {"rl": {"ray": "auto"}}},
            "rl.ray is auto, and the environments of rl.control are arrays",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_the_plan(tmp_path, monkeypatch, knobs, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(knobs))
    with pytest.raises(UserError) as e:
        plan.plans(tmp_path)
    assert message in str(e.value)


def test_a_process_that_hears_no_answer_says_what_it_waited_for(cluster, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT", 0.0)
    with pytest.raises(
        TimeoutError, match=f"rl.ray: waited 0 s for the Ray cluster at {cluster.address} to take this run in"
    ):
        connected(cluster)


@pytest.mark.slow
def test_the_players_of_a_lost_machine_are_played_elsewhere(cluster, alone, capfd):
    turns = []
    cluster.join()
    until = time.monotonic() + PATIENCE
    while True:
        try:
            entered = connected(cluster, n=4)
            break
        except UserError as e:  # it has not joined yet
            assert "has 2 CPUs" in str(e) and time.monotonic() < until
            time.sleep(0.5)

    def say(seen, seed):
        if len(turns) == 14:
            cluster.lose(1)
        turns.append(seed)
        return f"{seed % 97} and {len(seen)}"

    with entered as players:
        here = {p.pid for p in psutil.Process(cluster.nodes[0].pid).children(recursive=True)}
        seats, _ = actors(cluster)
        assert len(seats) == 4 and len({p.pid for p in seats} & here) == 2, "two on each machine"
        assert shown(player(players, say).play(problems(), 3, "seed")) == alone
    assert len(turns) == 12 * afar.TURNS and "(its Ray actor died)" in capfd.readouterr().err
