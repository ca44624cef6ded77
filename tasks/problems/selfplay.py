"""Assembles self-play: families, a proposer, a solver, a curriculum and a ledger become the loop of
`synth.selfplay`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from synth.selfplay.ledger import Ledger
from synth.selfplay.loop import Loop, Solver, cells
from synth.selfplay.spec import Family
from synth.types import Problem, Scored, seed_for
from tasks.core.errors import UserError
from tasks.pages.plots import lines
from tasks.planning.families import FOLDER
from tasks.planning.pieces import find, module


def registry(chosen: Sequence[partial]) -> dict[str, Family]:
    """The families of bound pieces. Raises UserError for a family whose items cannot be proved again from their
    text."""
    out = {}
    for piece in chosen:
        name = piece.func.__name__
        source = module(FOLDER, name)
        if not hasattr(source, "solve") or not hasattr(source, "LADDER"):
            raise UserError(f"the family {name} has no `solve` or no `LADDER`: self-play needs both (docs/families.md)")
        out[name] = Family(
            find(FOLDER, name),
            len(source.LADDER),
            source.solve,
            getattr(source, "posed", None),
            getattr(source, "agree", None),
        )
    return out


def paying(
    reward: Callable[..., Any], rng: np.random.Generator
) -> Callable[[Sequence[tuple[float, Mapping[str, float]]]], list[float]]:
    """Turns a reward piece into the reward of a round's proposals: they form one group, each with the solver's success
    rate as its score. A proposal that was rejected has success rate 0 and its reason as a part of the score."""
    from training.types import Group, Rollout

    nobody = Problem.make(prompt="propose", answer="", verifier="exact", family="proposal", split="train")

    def pay(proposals: Sequence[tuple[float, Mapping[str, float]]]) -> list[float]:
        scores = [Scored(value=0.0 if flags else rate, parts=flags) for rate, flags in proposals]
        group = Group(
            id="round", rollouts=tuple(Rollout(problem=nobody, group="round", segments=(), score=s) for s in scores)
        )
        values = np.array([s.value for s in scores])
        return [0.0 if math.isnan(x) else float(x) for x in reward([group], [values], {}, rng)[0]]

    return pay


def held_out(families: Mapping[str, Family], seed: int, each: int) -> list[Problem]:
    """`each` problems of every family from the split test, all levels in turn. They are never proposed, whatever a
    proposer says."""
    out = []
    for _, family in sorted(families.items()):
        drawn = (family.make(seed, "test", i, levels=[1 + i % family.levels]) for i in range(20 * each))
        out += [p for p in drawn if isinstance(p, Problem)][:each]
    return out


PIECES = ("proposer", "solver", "curriculum", "pay")


def loop(params: Mapping[str, Any], *, seed: int, ledger: Path, solver: Solver | None = None) -> Loop:
    """The loop for the parameters of the stage `problems` (pieces bound); `solver` replaces the one that they name.

    Raises UserError if the parameters lack what self-play needs, and if the ledger belongs to another run.
    """
    from training.rl.curriculum._stop import stop

    missing = [k for k in PIECES if params[k] is None and not (k == "solver" and solver)]
    if not params["rounds"] or missing:
        what = f"problems.{missing[0]} is not set" if params["rounds"] else "problems.rounds is 0"
        raise UserError(
            f"these settings do not play: {what}. Take a recipe that plays, such as --recipe socratic-zero, or set it"
        )
    families = registry(params["families"])
    chosen = {k: params[k] for k in PIECES if params[k] is not None}
    run = {
        "seed": seed,
        "families": [[f.func.__name__, f.keywords] for f in params["families"]],
        **{k: params[k] for k in ("proposals", "attempts", "held", "model")},
        **{k: [p.piece, p.keywords] for k, p in chosen.items()},
    }
    try:
        opened = Ledger(ledger, run)
    except ValueError as e:
        raise UserError(str(e)) from e
    if opened.said:
        print(f"warning: {opened.said}", file=sys.stderr)
    levels = {f.func.__name__: f.keywords.get("levels") for f in params["families"]}
    return Loop(
        families=families,
        cells=[c for c in cells(families, seed) if not levels[c.family] or c.level in levels[c.family]],
        ledger=opened,
        propose=params["proposer"],
        solve=solver or params["solver"](seed=seed),
        choose=params["curriculum"],
        pay=paying(params["pay"], np.random.default_rng(seed_for(seed, "selfplay", "pay"))),
        stop=stop if params["stop"] else lambda rounds: "",
        held=held_out(families, seed, params["held"]),
        seed=seed,
        rounds=params["rounds"],
        proposals=params["proposals"],
        attempts=params["attempts"],
    )


def played(running: Loop) -> Iterator[tuple[dict[str, Any], str]]:
    """Every round's summary, and a readable line."""
    rate = lambda x: "   -" if x is None else f"{x:4.0%}"  # noqa: E731
    for s in running.run():
        quarantined = ", ".join(f"{k} {v}" for k, v in s["quarantined"].items())
        head = f"{s['round']:>5}  {s['certified']:>4} of {s['proposed']:<4} {rate(s['success'])}  {rate(s['held'])}"
        yield s, f"{head}  {s['reward'] or 0:>6.2f}  {', '.join(s['weak']) or '-':<20}  {quarantined}".rstrip()


HEADER = "round  certified  success  held  reward  weak                  quarantined"


def plot(summaries: Sequence[Mapping[str, Any]], target: float | None) -> str:
    """A standalone picture of the success rate of every round, on held-out problems, and of the target."""
    at = [float(s["round"]) for s in summaries]
    series = {
        "success": ("rl", [s["success"] for s in summaries]),
        "held out": ("sft", [s["held"] for s in summaries]),
        "target": ("base", [target or None] * len(at)),
    }
    drawn = {c: (at, [np.nan if v is None else v for v in values]) for c, values in series.values()}
    legend = {c: n for n, (c, _) in series.items()}
    return lines(drawn, x="round", y="share of right answers", width=560, height=260, legend=legend) + "\n"
