"""Groups and batches from plain lists, for numeric checks of recipes and for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.types import Problem, Scored, Unscorable
from training.learner.pack import Row, pack
from training.lm_head.divergence import dense_divergence
from training.types import Batch, Group, Rollout, Segment, TokenStats


def problems(n: int) -> list[Problem]:
    return [
        Problem.make(prompt=f"question {i}", answer=str(i), verifier="exact_match", family="toy", split="train")
        for i in range(n)
    ]


def groups(
    rewards: Sequence[Sequence[float]],
    lengths: Sequence[Sequence[int]] | None = None,
    *,
    entropies: Sequence[Sequence[Any]] | None = None,
    parts: Sequence[Sequence[Mapping[str, float]]] | None = None,
    turns: Sequence[Sequence[int]] | None = None,
    steps: Sequence[Sequence[Sequence[float]]] | None = None,
    seen: Sequence[Sequence[Sequence[int]]] | None = None,
    values: Sequence[Sequence[Any]] | None = None,
    logps: Sequence[Sequence[Any]] | None = None,
    regions: Sequence[Sequence[Any]] | None = None,
    divergences: Sequence[Sequence[Any]] | None = None,
    texts: Sequence[Sequence[str]] | None = None,
    off_policy: Sequence[Sequence[bool]] | None = None,
    infos: Sequence[Sequence[Mapping[str, Any]]] | None = None,
    extras: Sequence[Sequence[Mapping[str, Sequence[Any]]]] | None = None,
    greedy: Sequence[float] | None = None,
    families: Sequence[str] | None = None,
    lineages: Sequence[Mapping[str, Any]] | None = None,
) -> list[Group]:
    """One group per list of rewards; NaN is an Unscorable rollout.

    Per rollout: `lengths` are the numbers of tokens the model wrote (3), `entropies`, `values`, `logps`, `regions` and
    `divergences` theirs (0, 0, -1, 2, 0; a number or a list), `parts` those of the score (none), `turns` how often the
    model spoke (once; the tokens are in the last turn but one each), `steps` the rewards of the turns (none), `seen` a
    number per turn for what the environment showed before it (0), `texts`, `off_policy` (False), `infos` (none), `extras`,
    a value per turn under each name, which all tokens of the turn have (none). Per
    group: the reward of the `greedy` answer (0), the problem's family ("toy") and lineage (none).
    """

    def rollout(
        problem: Problem,
        reward: float,
        n: int,
        entropy: Any,
        part: Mapping[str, float],
        spoke: int,
        step: Sequence[float],
        shown: Sequence[int],
        value: Any,
        logp: Any,
        text: str,
        foreign: bool,
        more: Mapping[str, Any],
        region: Any,
        divergence: Any,
        extra: Mapping[str, Sequence[Any]],
    ) -> Rollout:
        spoke = len(step) or len(shown) or max(map(len, extra.values()), default=0) or spoke
        h, v, p, g, d = (
            np.broadcast_to(np.asarray(x, dtype=np.float32), n) for x in (entropy, value, logp, region, divergence)
        )
        cuts = [*range(spoke), n]
        segments = [
            s
            for i, (a, b) in enumerate(zip(cuts, cuts[1:]))
            for s in (
                Segment(ids=np.array([0, shown[i] if len(shown) else 0]), role="env"),
                Segment(
                    ids=np.ones(b - a, dtype=np.int64),
                    role="model",
                    logp=p[a:b],
                    entropy=h[a:b],
                    extras={
                        **{"value": v[a:b], "region": g[a:b], "divergence": d[a:b]},
                        **{k: np.array([x[i]] * (b - a)) for k, x in extra.items()},
                    },
                    reward=step[i] if len(step) else None,
                ),
            )
        ]
        score = Scored(value=reward, parts=part) if not math.isnan(reward) else Unscorable(reason="toy")
        info = {**more, "off_policy": True} if foreign else dict(more)
        return Rollout(problem=problem, group=problem.id, segments=tuple(segments), score=score, text=text, info=info)

    def given(values: Sequence[Sequence[Any]] | None, default: Any) -> Sequence[Sequence[Any]]:
        return [[default] * len(r) for r in rewards] if values is None else values

    columns = zip(
        rewards,
        given(lengths, 3),
        given(entropies, 0.0),
        given(parts, {}),
        given(turns, 1),
        given(steps, ()),
        given(seen, ()),
        given(values, 0.0),
        given(logps, -1.0),
        given(texts, ""),
        given(off_policy, False),
        given(infos, {}),
        given(regions, 2.0),
        given(divergences, 0.0),
        given(extras, {}),
        strict=True,
    )
    asked_problems = [
        replace(p, family=f, lineage=about)
        for p, f, about in zip(
            problems(len(rewards)), families or ["toy"] * len(rewards), lineages or [{}] * len(rewards), strict=True
        )
    ]
    firsts = greedy or [0.0] * len(asked_problems)
    best = [
        rollout(p, float(x), 3, 0.0, {}, 1, (), (), 0.0, -1.0, "", False, {}, 2.0, 0.0, {})
        for p, x in zip(asked_problems, firsts, strict=True)
    ]
    return [
        Group(
            id=problem.id,
            rollouts=tuple(rollout(problem, float(x), *rest) for x, *rest in zip(*column, strict=True)),
            greedy=first,
        )
        for problem, column, first in zip(asked_problems, columns, best, strict=True)
    ]


@dataclass
class RolloutServices:
    """Stands in for training/rl/rollout_services.py: rollouts that it plays get the rewards of `plays` in turn, and
    texts that it scores get the reward `worth`.

    asked   every text that the model was prompted with, or that was put in its turns, in order
    """

    plays: list[Sequence[float]] = field(default_factory=list)
    worth: float = 1.0
    tokens: int = 0
    asked: list[str] = field(default_factory=list)
    attempt: int = 0
    problems: Sequence[Problem] = ()

    def restart(self, rollouts: Sequence[Rollout], passes: int, rows: int, rng: np.random.Generator) -> None:
        self.asked += [r.text for r in rollouts]

    def play(self, problem: Problem, samples: int, group: str, *, opening: str = "") -> Group:
        self.asked.append(problem.question + opening)
        (played,) = groups([[float(x) for x in (self.plays.pop(0) if self.plays else [0.0])][:samples]])
        return Group(id=group, rollouts=tuple(replace(r, group=group, problem=problem) for r in played.rollouts))

    def branch(self, ways: Sequence[tuple[Rollout, int]], samples: int) -> list[tuple[Rollout, ...]]:
        out = []
        for parent, turns in ways:
            self.asked.append(f"{turns} turns")
            rewards = [float(x) for x in (self.plays.pop(0) if self.plays else [0.0])][:samples]
            (played,) = groups([rewards], turns=[[parent.turns] * len(rewards)])
            out.append(tuple(replace(r, group=parent.group, problem=parent.problem) for r in played.rollouts))
        return out

    def by_base(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        return list(rollouts)

    def say(self, problem: Problem, turns: Sequence[str], group: str) -> Rollout:
        self.asked.append("\n".join(turns))
        (played,) = groups([[self.worth]], off_policy=[[True]], texts=[["\n".join(turns)]])
        return replace(played.rollouts[0], group=group, problem=problem)

    def until(self, rollout: Rollout, marker: str) -> tuple[str, int]:
        text, marked, _ = rollout.text.partition(marker)
        return (text, 1) if marked else ("", 0)

    def influence(self, rollout: Rollout, marker: str, nuisances: int, rng: np.random.Generator) -> dict[str, float]:
        return {"zx": 1.0, "xy": 1.0, "zy": 1.0}

    def tell(self, problem: Problem, turns: Sequence[np.ndarray], group: str) -> Rollout:
        return self.say(problem, [" ".join(map(str, t)) for t in turns], group)

    def again(self, rollout: Rollout, problem: Problem, group: str) -> Rollout:
        self.asked.append(problem.question)
        return replace(rollout, group=group, problem=problem, info={**rollout.info, "off_policy": True})


@dataclass
class Toy:
    """A packed batch, the outputs that a model would give for it, and the leaf tensor that gradients are taken of.

    leaf   logp [T], or logits [tokens the rows list, V] where the rows give whole distributions
    """

    batch: Batch
    leaf: Tensor
    stats: TokenStats

    def gradient(self, loss: Tensor) -> list[list[Any]]:
        """Gradient of a scalar loss as nested lists: per row, per listed token, a number (logp) or a list over the
        vocabulary (logits)."""
        (g,) = torch.autograd.grad(loss, self.leaf, allow_unused=True) if loss.requires_grad else (None,)
        g = torch.zeros_like(self.leaf) if g is None else g
        listed = self.batch.position > 0
        per_token = g if g.dim() == 2 else g[listed]
        return [x.tolist() for x in torch.split(per_token, [n - 1 for n in self.batch.lengths])]


def batch(rows: Sequence[Mapping[str, Any]]) -> Toy:
    """A batch of rows, each a prompt token followed by the tokens it lists.

    A row gives `logp: [n]` (or one number with `n`), or `probs: [n][V]` (distributions over a small vocabulary) with
    the sampled `tokens: [n]`. Optional keys (default), each a number or a list [n]: advantages (0), old (the given
    logp), sampling_logp (old), reference (the given logp), trainable (true), sampling_entropy (that of the
    distribution), chance, value and returns (0.5), corrupted (the given logp), turn (1), turn_reward (0) and attention
    (1). Optional keys of the whole row: reward (0), off_policy (0), group (its own). Rows with probs may also give the
    distributions of a `teacher: [n][V]` (default: the same as probs). `columns` and `extras`: name -> [n][...], more columns of the batch,
    and what else is read of the policy; all rows give the same names.
    """
    if len({"probs" in row for row in rows}) != 1:
        raise ValueError("either all rows of a toy batch give probs, or none")
    packed, given, entropies = [], [], []
    for row in rows:
        if "probs" in row:
            p = np.asarray(row["probs"], dtype=np.float64)
            logp = np.log(p[np.arange(len(p)), row["tokens"]])
            entropy = -(p * np.log(p)).sum(-1)
        else:
            logp = np.broadcast_to(np.asarray(row["logp"], dtype=np.float64), row.get("n", np.size(row["logp"])))
            entropy = np.zeros(len(logp))
        old = row.get("old", logp)
        values = {
            "advantages": row.get("advantages", 0.0),
            "old": old,
            "sampling_logp": row.get("sampling_logp", old),
            "reference": row.get("reference", logp),
            "sampling_entropy": row.get("sampling_entropy", entropy),
            **{k: row.get(k, 0.5) for k in ("chance", "value", "returns")},
            "corrupted": row.get("corrupted", logp),
            "turn": row.get("turn", 1.0),
            "turn_reward": row.get("turn_reward", 0.0),
            "attention": row.get("attention", 1.0),
        }
        n = len(logp)
        columns = {
            k: np.concatenate([[0.0], np.broadcast_to(np.asarray(v, dtype=np.float64), n)]) for k, v in values.items()
        }
        columns |= {k: _begun(v) for k, v in row.get("columns", {}).items()}
        trainable = np.concatenate([[False], np.broadcast_to(row.get("trainable", True), n)])
        ids = np.concatenate([[0], row.get("tokens", np.ones(n))]).astype(np.int64)
        scalars = {k: float(row.get(k, 0.0)) for k in ("reward", "off_policy")}
        packed.append(
            Row(ids=ids, trainable=trainable, group=row.get("group", len(packed)), columns=columns, scalars=scalars)
        )
        given += [np.concatenate([[0.0], logp])]
        entropies += [np.concatenate([[0.0], entropy])]
    out = pack(packed)
    extras = {
        k: torch.tensor(np.concatenate([_begun(row["extras"][k]) for row in rows]), dtype=torch.float32)
        for k in rows[0].get("extras", {})
    }
    if "probs" not in rows[0]:
        leaf = torch.tensor(np.concatenate(given), dtype=torch.float32, requires_grad=True)
        return Toy(
            batch=out,
            leaf=leaf,
            stats=TokenStats(
                logp=leaf, entropy=torch.tensor(np.concatenate(entropies), dtype=torch.float32), extras=extras
            ),
        )
    leaf = torch.tensor(np.log(np.concatenate([row["probs"] for row in rows])), dtype=torch.float32, requires_grad=True)
    full = torch.log_softmax(leaf, -1)
    at = (out.position > 0).nonzero().squeeze(1)
    spread = lambda x: torch.zeros(len(out.ids)).index_add(0, at, x)  # noqa: E731
    chosen = full.gather(1, out.ids.index_select(0, at)[:, None]).squeeze(1)
    trained = out.trainable.index_select(0, at)
    log_q = torch.tensor(
        np.log(np.concatenate([row.get("teacher", row["probs"]) for row in rows])), dtype=torch.float32
    )
    stats = TokenStats(
        logp=spread(chosen),
        entropy=spread(-(full.exp() * full).sum(-1)),
        distribution=lambda: full[trained],
        divergence=lambda kind, mix: spread(dense_divergence(full, log_q, kind, mix)),
    )
    return Toy(batch=out, leaf=leaf, stats=stats)


def _begun(values: Any) -> np.ndarray:
    """[n, ...] -> [1 + n, ...]: 0 for the prompt token."""
    x = np.asarray(values, dtype=np.float64)
    return np.concatenate([np.zeros((1, *x.shape[1:])), x])
