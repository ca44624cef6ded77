"""Can the judge of gui-shepherd's protocol judge? `python -m benchmarks.screen_judge`

The judge is the policy that the world `acting` starts from. Measured is how often it answers questions of its own kind (screen_tasks, "Is it
right?", test split) rightly, and whether the chance of its yes tells right actions of play from wrong ones, after reasons of so many
tokens: the area under the curve, 0.5 by chance. An action is right after which less of the request is left. The start is made where there is none
(some six CPU minutes).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.rows import result_row
from synth.families.screen_tasks import screen_tasks
from tasks.lab import clip_worlds
from tasks.lab.behaviour import prepared, protocol_of
from tasks.planning.resolve import overlaid
from training.env.look import look
from training.env.screen import screen
from training.rl.group_transform.judged_actions import asked, believed
from training.rl.rollout_services import RolloutServices

RESULTS = Path(__file__).parent / "results" / "screen-judge.json"
COMMAND = "python -m benchmarks.screen_judge"
SEED, QUESTIONS, TASKS, TRIES = 11, 60, 40, 4
REASONS = (0, 12, 24)  # tokens; the recipe has 12


def area(yes: Sequence[float], right: Sequence[bool]) -> float:
    """The chance that a right action has the higher yes than a wrong one, ties half."""
    y, r = np.asarray(yes), np.asarray(right, dtype=bool)
    above = y[r][:, None] - y[~r][None]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


def main() -> None:
    torch.set_num_threads(1)
    p = protocol_of("gui-shepherd")
    composed, player = prepared(p["task"], "gui-shepherd", overlaid(p["both"], p["set"]), 1, SEED)
    player = replace(player, envs={"look": look(), "screen": screen(most=4, told=True)})
    services = RolloutServices(player=player, reference=composed.experience.reference)
    own = clip_worlds.made(screen_tasks, "test", QUESTIONS, seed=5, env="look", asks=("judge",), levels=(1,))
    scores = [getattr(r.score, "value", 0.0) for g in player.play(own, TRIES, "own") for r in g.rollouts]
    rows = [row("questions of its own kind", "right", float(np.mean(scores)), "share", len(scores))]
    tasks = [q for q in composed.experience.problems if q.env == "screen"][:TASKS]
    messages, right = [], []
    for rollout in (r for g in player.play(tasks, TRIES, "play") for r in g.rollouts):
        turns = [s for s in rollout.segments if s.role == "model"]
        for message, turn in zip(asked(rollout), turns, strict=True):
            if message is not None:
                messages.append(message)
                right.append((turn.reward or 0) > 0)
    for n in REASONS:
        yes = believed(services, messages, n, (SEED, n))
        case = f"actions of play, reasons of {n} tokens"
        rows.append(row(case, "area under the curve", area(yes, right), "area", len(yes)))
        rows.append(row(case, "mean chance of yes", float(np.mean(yes)), "probability", len(yes)))
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for r in rows:
        print(f"{r['case']}: {r['metric']} {r['value']:.3f} (n {r['n']})")


def row(case: str, metric: str, value: float, unit: str, n: int) -> dict:
    return result_row(case, metric, value, unit, COMMAND, n, one_core=True, torch=torch.__version__)


if __name__ == "__main__":
    main()
