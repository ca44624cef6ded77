"""When progress stops, all that was solved is proved anew, and the policy learns the best of it from its first weights on.

"Scaling up Multi-Turn Off-Policy RL and Multi-Agent Tree Search for LLM Step-Provers" 2025 (BFS-Prover-V2, arXiv 2509.06493), not
read in the paper: it names the three steps, and the rules are our reading.

    m_k = share of the rollouts with r >= right, in the k-th `window` steps
    progress has stopped where `patience` windows in a row are no better than the best before them; then
    1. the policy plays every problem that any step solved, `tries` times, and the shortest right rollout of each is kept
    2. of these, those are kept with low <= rank of n / (count - 1) <= high, n = mean over the sampled tokens of -log pi: the
       surest are known already, and the least sure were luck
    3. the weights of the start are put back, the optimizer forgets, and `passes` passes of the next-token loss are
       taken over what was kept, `rows` rollouts an update

The step at hand is then played anew, since what was played is of the policy that is no more. The count of windows
begins anew too, at most `resets` times. Shapes: groups in and out, of the same sizes. What cannot be proved again is
lost. State: rates of the present window, the best mean, windows since, resets so far, and the ids of solved problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from synth.types import Problem
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout

NEEDS = {"restart"}
EXCLUDES = {
    "asynchrony/one_off": "soft_reset puts the first weights back, and sampling that runs ahead would go on with the others; use asynchrony sync",
    "asynchrony/streamed": "soft_reset puts the first weights back, and sampling that runs ahead would go on with the others; use asynchrony sync",
}


def soft_reset(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    right: float = 1.0,
    window: int = 10,
    patience: int = 2,
    tries: int = 4,
    low: float = 0.2,
    high: float = 0.95,
    passes: int = 4,
    rows: int = 32,
    resets: int = 1,
) -> list[Group]:
    if min(window, patience, tries, passes, rows) < 1 or not 0 <= low < high <= 1:
        raise ValueError(
            f"soft_reset: window {window}, patience {patience}, tries {tries}, passes {passes} and rows {rows} are numbers of 1 or more, and "
            f"the band from {low} to {high} lies within 0 and 1"
        )
    groups, solved = list(groups), state.setdefault("solved", [])
    known = [(g, g.rewards[~np.isnan(g.rewards)]) for g in groups]
    # several groups of a step may be of one problem, and a dictionary keeps the order in which they were solved
    solved += dict.fromkeys(
        i for g, r in known if len(r) and r.max() >= right and (i := g.rollouts[0].problem.id) not in solved
    )
    hits = [float(x >= right) for _, r in known for x in r]
    if services.attempt or not hits or state.get("resets", 0) >= resets:
        return groups  # a refill is of the step that was counted already
    if not stalled(state, float(np.mean(hits)), window, patience):
        return groups
    state["resets"] = state.get("resets", 0) + 1
    wanted = set(solved)
    kept = _proved_anew({p.id: p for p in services.problems if p.id in wanted}, solved, services, right, tries)
    services.restart(within(kept, low, high), passes, rows, rng)
    return [services.play(g.rollouts[0].problem, len(g.rollouts), g.id) for g in groups]


def stalled(state: dict, rate: float, window: int, patience: int) -> bool:
    """Whether progress has stopped, after a step with this share of right rollouts. The count begins anew where it has."""
    rates = [*state.get("rates", []), rate]
    state["rates"] = rates if len(rates) < window else []
    if len(rates) < window:
        return False
    mean, best = sum(rates) / window, state.get("best", -1.0)
    state["best"], state["idle"] = max(mean, best), 0 if mean > best + 1e-9 else state.get("idle", 0) + 1
    if state["idle"] < patience:
        return False
    state["best"], state["idle"] = -1.0, 0
    return True


def _proved_anew(
    problems: Mapping[str, Problem], solved: Sequence[str], services: RolloutServices, right: float, tries: int
) -> list[Rollout]:
    """The shortest right rollout of each solved problem that is right again."""
    kept = []
    for i, name in enumerate(solved):
        if name in problems:
            played = services.play(problems[name], tries, f"anew/{i}")
            right_again = [r for r, x in zip(played.rollouts, played.rewards, strict=True) if x >= right]
            kept += [min(right_again, key=lambda r: r.n_model)] if right_again else []
    return kept


def within(rollouts: Sequence[Rollout], low: float, high: float) -> list[Rollout]:
    """Those whose mean negative log-prob ranks within the band, in their order; of two or fewer, all."""
    if len(rollouts) < 3:
        return list(rollouts)
    rank = np.argsort(np.argsort([-r.each("logp").mean() if r.n_model else 0.0 for r in rollouts], kind="stable"))
    share = rank / (len(rollouts) - 1)
    return [r for r, s in zip(rollouts, share, strict=True) if low - 1e-12 <= s <= high + 1e-12]
