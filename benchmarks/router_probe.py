"""What the routers of `t2mir` have learned, on bandits that were never played: `make bench-router-probe`

- information: how much the expert that the task's router gives the most weight, at the last step of an episode, says of the bandit's best arm, in bits
  (log2 of 5 arms is 2.32). Estimated from EPISODES episodes, less the mean of 20 shufflings of the arms, so that chance is 0.
- probe: the share of new episodes whose best arm a linear probe (logistic regression) reads off the router's weights, fitted on half of the episodes
- same task: how often the router's weights of an episode are nearer (cosine) to those of another episode of the same bandit than to those of one of
  another bandit; chance is 1/2
- kinds: how much the expert that the tokens' router gives the most weight says of what a token is (an action, a reward, the question), in bits
- least: the smallest share of tokens that an expert of tokens is given (top k, by weight)

The control has the same two mixtures, learned without the contrast (`coef` 0). `python -m benchmarks.router_probe N` takes N seeds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.rows import row_of_seeds
from synth.types import Sampling, seed_for
from tasks.lab.worlds import Room, plans, quiet, run_stage
from tasks.models.control import actor, kind
from tasks.planning.pieces import bind_all
from training.model.control import load_policy
from training.model.in_context import top
from training.rollout.control import seeds

RESULTS = Path(__file__).parent / "results" / "router-probe.json"
COMMAND = "make bench-router-probe"
STEPS, EPISODES = 40, 1000  # of the recipe's protocol; measured, two of each bandit
PLAIN = [{"piece": "task_contrast", "coef": 0.0, "balance": 0.01}]
ARMS: dict[str, dict[str, Any] | None] = {
    "before learning": None,
    "as the recipe ships": {},
    "without the contrast": {"regularisers": PLAIN},
}
UNITS = {"best arm read off": "share", "same task": "share", "least used expert": "share of tokens"}


def information(a: np.ndarray, b: np.ndarray) -> float:
    """Mutual information of two labels [n], in bits, by their counts."""
    joint = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(joint, (a, b), 1 / len(a))
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    on = joint > 0
    return float((joint[on] * np.log2(joint[on] / apart[on])).sum())


def above_chance(a: np.ndarray, b: np.ndarray) -> float:
    """`information` less that of shuffled labels."""
    rng = np.random.default_rng(0)
    return information(a, b) - float(np.mean([information(a, rng.permutation(b)) for _ in range(20)]))


def read_off(q: np.ndarray, labels: np.ndarray) -> float:
    """The share of the second half of episodes whose label [n] a logistic regression on q [n, E], fitted on the first half, gives."""
    from sklearn.linear_model import LogisticRegression

    half = len(q) // 2
    fitted = LogisticRegression(max_iter=1000, C=100.0).fit(q[:half], labels[:half])
    return float(fitted.score(q[half:], labels[half:]))


def probed(world: Any, model: Any, seed: int) -> dict[str, float]:
    """The numbers of one policy."""
    _, player = actor(world, seed=seed, sampling=Sampling(temperature=1.0), max_steps=world.pulls, model=model)
    problems = seeds(EPISODES // 2, seed=seed_for(seed, "router-probe"), family="measure")
    best = np.array([int(world.start(p.args["seed"])[0].means.argmax()) for p in problems]).repeat(2)
    rollouts = [r for g in player.play(problems, 2, seed) for r in g.rollouts]
    steps = [[s for s in r.segments if s.role == "model"] for r in rollouts]
    last = torch.from_numpy(np.stack([s[-1].extras["observation"][0] for s in steps])).float()
    with torch.no_grad():
        told = player.sampler.model.read(last)
    q = told["routers"].exp().double().numpy()
    used, p = told["used"].numpy(), told["p"].double()
    spread = top(p.log(), world.sizes["top_k"]).numpy()[used]
    kinds = np.broadcast_to(np.append(np.tile([0, 1], world.pulls), 2), used.shape)[used]
    unit = q / np.linalg.norm(q, axis=1, keepdims=True)
    own = (unit[::2] * unit[1::2]).sum(1)
    other = (unit[::2] * np.roll(unit[1::2], 1, axis=0)).sum(1)
    return {
        "best arm, of the task's expert": above_chance(q.argmax(1), best),
        "best arm read off": read_off(q[::2], best[::2]),
        "same task": float(np.mean((own > other) + 0.5 * (own == other))),
        "kind of token, of its expert": above_chance(p.numpy()[used].argmax(1), kinds),
        "least used expert": float(spread.mean(0).min()),
    }


def learned(changes: Mapping[str, Any] | None, seed: int) -> dict[str, float]:
    """One seed of the recipe, so changed; None: before learning."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        room = Room(Path(folder), seed, "t2mir")
        stage = plans("t2mir", {"rl": changes or {}}, STEPS)["rl"]
        world = bind_all(stage.pieces, stage.params, stage.settings)["control"]()
        model = None
        if changes is not None:
            run_stage(room, "rl", stage)
            model = load_policy(room.root / "artifacts" / "rl" / "model", kind(world))
        return probed(world, model, seed)


def main(n: int = 5) -> None:
    torch.set_num_threads(1)
    results = []
    for arm, changes in ARMS.items():
        each = [learned(changes, seed) for seed in range(1, n + 1)]
        for metric in each[0]:
            values = np.array([x[metric] for x in each])
            unit = UNITS.get(metric, "bits")
            results.append(row_of_seeds(arm, metric, values, unit, COMMAND, torch=torch.__version__))
            print(arm, metric, values.round(3).tolist(), flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
