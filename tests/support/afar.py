"""Environments for tests of players, in a module that other processes can import."""

import os
import signal
import time
import weakref
from pathlib import Path

from synth.types import Message, Scored

TURNS = 3


class Kept:
    """Something of a state; how many of them live is how many states are kept."""


class Afar:
    """Three turns; it says what it was told, and how often, and sets whatever a player takes out of a state.

    kind   "all": that; "kills": ends its process at "<kill>", "hangs" at "<hang>" likewise; "fails": raises; "lots": says its
           process; "kept": says how many states its process holds
    """

    def __init__(self, kind, folder=""):
        self.kind, self.folder, self.alive = kind, folder, weakref.WeakSet()

    def start(self, problem, tools):
        kept = Kept()
        self.alive.add(kept)
        state = {"problem": problem, "said": (x for x in "abc"), "n": 0, "calls": 0, "rewards": [], "kept": kept}
        more = [Message(role="user", content=f"{len(self.alive)} kept")] if self.kind == "kept" else []
        return state | {"offered": ()}, [*problem.prompt, *more]

    def step(self, state, text):
        if self.kind == "kills" and "<kill>" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "hangs" and "<hang>" in text:
            time.sleep(60)
        if self.kind == "fails":
            raise LookupError("there is no such thing")
        if self.folder:
            with (Path(self.folder) / "steps").open("a") as f:
                f.write(f"{state['problem'].id} {state['n']}\n")
        state["n"] += 1
        state["calls"] += 1
        state["step_reward"] = state["n"] / 2
        state["turn_rewards"] = state["rewards"] = [*state["rewards"], float(state["n"])]
        if state["n"] == TURNS:
            return [], True, Scored(value=len(text) % 7 / 7, parts={"turns": float(state["n"])})
        message = f"{next(state['said'])} {state['n']} {len(text)}" + (f" {os.getpid()}" if self.kind == "lots" else "")
        if state["n"] == 1 and state["problem"].question.endswith("Karo ?"):
            state["history"] = [*state["problem"].prompt, Message(role="user", content="again: " + message)]
        return [Message(role="user", content=message)], False, None


def built(kinds=("all",), folder="", fails=""):
    if fails:
        raise ValueError(fails)
    return {kind: Afar(kind, folder) for kind in kinds}, {}


# --- jobs of tests/tasks/runtime/test_ray_tasks.py


def doubled(x):
    return 2 * x


def ends(*job):
    os.kill(os.getpid(), signal.SIGKILL)


def _once(mark):
    """Ends this process the first time, if `mark` is the path of a file that is not there yet."""
    if mark and not Path(mark).exists():
        Path(mark).touch()
        ends()


def ends_once(job):
    x, mark = job
    _once(mark)
    return doubled(x)


def missing(x):
    if x == 3:
        raise LookupError(f"there is no {x}")


def written(at, job):
    """A part of a job: half of it, and then the rest."""
    k, mark = job
    with (at / "x").open("w") as file:
        file.write(f"{k}" * 50)
        file.flush()
        _once(mark)
        file.write(f"{k}" * 49)
