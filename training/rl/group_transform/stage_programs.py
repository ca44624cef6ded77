"""Pays steps by reward programs, one for each stage of a task, that were tested on scripted traces before they were used.

"RoboHorizon: An LLM-Assisted Multi-View World Model for Long-Horizon Robotic Manipulation", 2025 (arXiv 2501.06605), of which the
abstract was read; how a program is tested and how it pays is our reading.

    Phi(s) = k(s) + p_k(s)(s), K where all stages are done        k(s) the number of stages done in s, p_k the program of stage k, in [0, 1)
    reward of a step = Phi(s') - Phi(s)                            so that an episode is paid what it reached, and standing still pays nothing

`drafts` are texts "k: formula" in the order in which they were written, as a language model writes them: formulas of + - * /, numbers, abs, min, max and the
names of `variables`, whose values are the first numbers of an observation. They are read, never run. A draft is refused that does
not parse or names what is not there, and one that leaves [0, 1) or does not rise at every step of its stage on one of `traces` scripted plays of
the world `key_door`. The first draft of a stage that passes is used; `state` keeps which, and why others were refused.

Shapes: groups in and out, with the rewards of turns replaced; scores stay, and so do rollouts without one. The last state of an episode is not stored: its
stage is the part `stage` of the score, and its progress counts as that of the state before it. Raises ValueError for a stage
without a program. tested: whether drafts are tested; otherwise the first that parses is used. dense: whether programs pay at all, or stages alone.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from synth.types import Scored
from training.env.control.key_door import scripted
from training.rl.group_transform._steps import each_step, paid
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout

STEPS = True  # it does not use the services, so it works for worlds of numbers too
READS = ("stage",)
GIVES = ("turn_reward",)
LONGEST = 300  # letters of a draft
NAMES = ("x", "y", "key_x", "key_y", "door_x", "door_y", "goal_x", "goal_y", "held", "open", "done")
DRAFTS = (
    "0: 1 - (abs(key_x) + abs(key_y)) / 2.1",
    "1: 1 - (abs(door_x) + abs(door_y)) / 2.1",
    "2: 1 - (abs(goal_x) + abs(goal_y)) / 2.1",
)
_FUNCTIONS: Mapping[str, Callable] = {"abs": np.abs, "min": np.minimum, "max": np.maximum}
_OPERATIONS: Mapping[type, Callable] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
}


def stage_programs(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    drafts: tuple = DRAFTS,
    variables: tuple = NAMES,
    stages: int = 3,
    done: tuple = (8, 9, 10),
    traces: int = 8,
    size: int = 8,
    tested: bool = True,
    dense: bool = True,
) -> list[Group]:
    """drafts: programs, "stage: formula". variables: names of the first numbers of an observation. stages: how many there are. done: the observations
    that are 1 once a stage is done. traces: scripted plays that programs are tested on. size: side of their grid. tested: whether they are tested.
    dense: whether programs pay; otherwise stages alone do."""
    if "accepted" not in state:
        state["accepted"], state["refused"] = chosen(drafts, variables, stages, done, traces if tested else 0, size)
    programs = [read(state["accepted"][str(k)], variables) for k in range(stages)]

    def worth(seen: np.ndarray, at: np.ndarray) -> np.ndarray:
        out = at.astype(np.float64)
        for k in range(stages if dense else 0):
            if (here := at == k).any():
                out[here] += np.clip(programs[k](seen[here]), 0.0, 1.0)
        return out

    def pay(rollout: Rollout) -> Rollout:
        if not rollout.n_model or not isinstance(rollout.score, Scored):
            return rollout
        seen = each_step(rollout, "observation")
        if seen.shape[1] < max(len(variables), max(done) + 1):
            raise ValueError(
                f"group_transform/stage_programs: variables has {len(variables)} names, and an observation has {seen.shape[1]} numbers: name those that it has"
            )
        at = np.append(seen[:, list(done)].sum(1).round().astype(int), int(rollout.score.parts["stage"]))
        return paid(rollout, np.diff(worth(np.concatenate([seen, seen[-1:]]), at)))

    return [type(g)(id=g.id, rollouts=tuple(map(pay, g.rollouts)), greedy=g.greedy) for g in groups]


def chosen(
    drafts: Sequence[str], variables: Sequence[str], stages: int, done: Sequence[int], traces: int, size: int
) -> tuple[dict[str, str], list[str]]:
    """Stage -> the formula that is used, and a sentence for each draft that was refused. Raises ValueError for a stage without a program."""
    shown = [scripted(seed, size) for seed in range(traces)]
    accepted: dict[str, str] = {}
    refused: list[str] = []
    for draft in drafts:
        stage, _, formula = str(draft).partition(":")
        stage, formula = stage.strip(), formula.strip()
        if stage in accepted:
            continue
        if not stage.isdigit() or int(stage) >= stages:
            refused.append(f"{draft!r} is for no stage from 0 to {stages - 1}")
            continue
        try:
            program = read(formula, variables)
        except ValueError as e:
            refused.append(f"{draft!r} {e}")
            continue
        if why := next(filter(None, (_fails(program, trace, int(stage), done) for trace in shown)), ""):
            refused.append(f"{draft!r} {why}")
        else:
            accepted[stage] = formula
    if lacking := [k for k in range(stages) if str(k) not in accepted]:
        why = f": {refused[-1]}" if refused else ""
        raise ValueError(
            f"group_transform/stage_programs: stage {lacking[0]} has no program that passes its tests{why}: add a draft for it, or set tested: false"
        )
    return accepted, refused


def _fails(program: Callable, trace: np.ndarray, stage: int, done: Sequence[int]) -> str:
    """Why a program of a stage is refused on a scripted play [n, d], "" if it is not."""
    here = trace[trace[:, list(done)].sum(1).round() == stage]
    with np.errstate(all="ignore"):
        values = np.broadcast_to(program(here), len(here))
    if not np.isfinite(values).all() or (values < 0).any() or (values >= 1).any():
        return "leaves the numbers from 0 to below 1 on a scripted play"
    if (np.diff(values) <= 1e-9).any():
        return "does not rise at every step of a scripted play"
    return ""


def read(formula: str, variables: Sequence[str]) -> Callable[[np.ndarray], np.ndarray]:
    """A formula as a function of observations [n, d] -> [n]. Raises ValueError with what is wrong with it."""
    try:
        tree = ast.parse(formula, mode="eval").body if len(formula) <= LONGEST else None
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        tree = None
    if tree is None:
        raise ValueError("is no formula")

    def part(node: ast.AST) -> Callable[[np.ndarray], np.ndarray]:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            number = float(node.value)
            return lambda s: np.full(len(s), number)
        if isinstance(node, ast.Name):
            if node.id not in variables:
                raise ValueError(f"names {node.id!r}, which is no variable")
            i = list(variables).index(node.id)
            return lambda s: s[:, i]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            of = part(node.operand)
            return lambda s: -of(s)
        if isinstance(node, ast.BinOp) and (f := _OPERATIONS.get(type(node.op))):
            a, b = part(node.left), part(node.right)
            return lambda s: f(a(s), b(s))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and (g := _FUNCTIONS.get(node.func.id)):
            given = [part(a) for a in node.args]
            if node.keywords or len(given) != (1 if node.func.id == "abs" else 2):
                raise ValueError(f"gives {node.func.id} {len(given)} numbers")
            return lambda s: g(*(f(s) for f in given))
        raise ValueError("is more than a formula of + - * /, abs, min and max")

    return part(tree)
