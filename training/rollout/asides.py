"""What pieces ask to know beside the rollouts: the greedy answer, the belief in the reference answer, ranks, regions, doubts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.types import Problem, Scored
from training.attention import PackedRows
from training.learner import score, token_stats
from training.model import hidden_states
from training.pack import Row, pack, rollout_row
from training.rollout.play import Player
from training.types import Group, Rollout, Segment

ANSWER = "<answer>"
TAG = re.compile(r"</?[a-z_]+>")


def with_greedy(player: Player, problems: Sequence[Problem], groups: Sequence[Group], *seed: Any) -> list[Group]:
    """The groups, each with its prompt's answer at temperature 0 as `greedy`."""
    greedy = replace(player, sampling=replace(player.sampling, temperature=0.0)).play(problems, 1, *seed)
    return [replace(g, greedy=replace(one.rollouts[0], group=g.id)) for g, one in zip(groups, greedy, strict=True)]


def with_reference_answer(player: Player, groups: Sequence[Group], temperature: float = 1.0) -> list[Group]:
    """The groups with parts "reference" and "reference_bare" in the scores of their rollouts.

    reference        mean probability of the tokens of the problem's reference answer where the last turn's own answer stood: the text of
                     the rollout up to `<answer>`, then the reference, teacher-forced. 0 where the rollout has no `<answer>`
    reference_bare   the same without what the rollout wrote before it, one number per prompt
    """
    encode = player.renderer.encode
    rows: list[Row] = []
    places: list[tuple[int, int | None]] = []
    for g, group in enumerate(groups):
        answer = encode(f"{ANSWER}{group.rollouts[0].problem.answer}</answer>")
        keep = len(encode(ANSWER))
        for i, rollout in [(None, group.rollouts[0]), *enumerate(group.rollouts)]:
            before = rollout.segments[0].ids if i is None else _until_answer(player, rollout)
            if before is not None:
                ids = np.concatenate([before, answer])
                rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(before) + keep))
                places.append((g, i))
    batch = pack(rows)
    logp = score(player.sampler.model, batch, temperature=temperature).logp.exp() * batch.trainable
    means = dict(zip(places, (batch.row_sum(logp) / batch.row_tokens).tolist(), strict=True))

    def known(g: int, i: int, rollout: Rollout) -> Rollout:
        return with_parts(rollout, {"reference": means.get((g, i), 0.0), "reference_bare": means[g, None]})

    return [replace(group, rollouts=tuple(known(g, i, r) for i, r in enumerate(group.rollouts))) for g, group in enumerate(groups)]


def _until_answer(player: Player, rollout: Rollout) -> np.ndarray | None:
    """Ids of a rollout up to where its last turn began to answer, None where it did not."""
    *before, last = rollout.forks[-1]
    text, tag, _ = player.renderer.decode(last.ids).partition(ANSWER)
    if not tag or last.role != "model":
        return None
    return np.concatenate([*(s.ids for s in before), player.renderer.encode(text)])


def with_effective_rank(player: Player, groups: Sequence[Group], stride: int = 8) -> list[Group]:
    """The groups with parts "rank", "rank_velocity" and "rank_acceleration" in the scores of their rollouts.

    The effective rank of n hidden states [n, d] is exp of the entropy of their singular values' shares. It is taken of growing prefixes,
    `stride` tokens apart, of the last layer's states at what the model wrote; velocity is the mean first difference of these values,
    acceleration the mean second difference (0 where there are too few).
    """
    rows = [rollout_row(r, 0.0, g) for g, group in enumerate(groups) for r in group.rollouts if r.n_model]
    batch = pack(rows, device=str(next(player.sampler.model.parameters()).device))
    with torch.no_grad():
        hidden = hidden_states(player.sampler.model, batch.ids, batch.position, PackedRows(batch.lengths, batch.ids.device)).float()
    states = iter(h[t].cpu() for h, t in zip(hidden.split(batch.lengths), batch.trainable.split(batch.lengths), strict=True))

    def known(rollout: Rollout) -> Rollout:
        if not rollout.n_model:
            return rollout
        z = next(states)
        ranks = [rank_of(z[:n]) for n in sorted({*range(stride, len(z), stride), len(z)})]
        first, second = np.diff(ranks), np.diff(ranks, n=2)
        velocity, acceleration = (float(x.mean()) if len(x) else 0.0 for x in (first, second))
        return with_parts(rollout, {"rank": ranks[-1], "rank_velocity": velocity, "rank_acceleration": acceleration})

    return [replace(group, rollouts=tuple(known(r) for r in group.rollouts)) for group in groups]


def rank_of(states: Tensor) -> float:
    """Effective rank of states [n, d]: r for r equal orthogonal directions. Roy and Vetterli 2007, "The effective rank"."""
    s = torch.linalg.svdvals(states.double())
    q = s / s.sum().clamp_min(1e-12)
    return float(torch.exp(-torch.where(q > 0, q * q.clamp_min(1e-300).log(), 0.0).sum()))


def with_parts(rollout: Rollout, parts: dict[str, float]) -> Rollout:
    """The rollout with more parts in its score; an unscorable one stays as it is."""
    if not isinstance(rollout.score, Scored):
        return rollout
    return replace(rollout, score=replace(rollout.score, parts={**rollout.score.parts, **parts}))


def concentration(player: Player, problems: Sequence[Problem]) -> dict[str, float]:
    """Problem id -> mean cosine between the last hidden states of the tokens of its prompt (each with those before it, itself included)."""
    prompts = [player.renderer.prompt(player.envs[p.env].start(p, player.tools)[1]) for p in problems]
    found: dict[str, float] = {}
    for lo in range(0, len(problems), 64):
        batch = pack([Row(ids=ids, trainable=np.ones(len(ids), dtype=bool)) for ids in prompts[lo : lo + 64]])
        with torch.no_grad():
            hidden = hidden_states(player.sampler.model, batch.ids, batch.position, PackedRows(batch.lengths, batch.ids.device)).float()
        for problem, z in zip(problems[lo : lo + 64], torch.nn.functional.normalize(hidden, dim=-1).split(batch.lengths), strict=True):
            found[problem.id] = float((z @ z.T).tril().sum() / (len(z) * (len(z) + 1) / 2))
    return found


def with_regions(player: Player, groups: Sequence[Group]) -> list[Group]:
    """The groups with extras["region"] on what the model wrote: 1 a tag such as `<search>`, 2 working, 4 what stands within tags.

    A token belongs to the part that its last character lies in; the token that ends a turn is a tag.
    """
    decode = player.renderer.decode

    def codes(ids: np.ndarray) -> np.ndarray:
        text, out, inside, at = decode(ids), [], False, 0
        spans = [(m.start(), m.end(), m[0].startswith("</")) for m in TAG.finditer(text)]
        for k in range(1, len(ids) + 1):
            end = len(text) if k == len(ids) else len(decode(ids[:k]))
            last = max(end, at + 1) - 1
            hit = next((s for s in spans if s[0] <= last < s[1]), None)
            if hit is None:
                before = [closing for _, end_of, closing in spans if end_of <= last + 1]
                inside = before.count(False) > before.count(True)
            out.append(1.0 if hit is not None or int(ids[k - 1]) == player.renderer.end_id else 4.0 if inside else 2.0)
            at = end
        return np.array(out, dtype=np.float32)

    return [replace(g, rollouts=tuple(_with_extra(r, "region", lambda s, _: codes(s.ids)) for r in g.rollouts)) for g in groups]


def with_divergence(player: Player, groups: Sequence[Group], temperature: float = 1.0) -> list[Group]:
    """The groups with extras["divergence"]: how much their rollouts disagree at each position of what they wrote, scaled to [0, 1] in a group."""
    out = []
    for group in groups:
        rows = [rollout_row(r, 0.0, 0) for r in group.rollouts if r.n_model]
        batch = pack(rows, device=str(next(player.sampler.model.parameters()).device))
        with torch.no_grad():
            logp = token_stats(player.sampler.model, batch, temperature=temperature).distribution().cpu()
        full = logp.split([int(r.trainable.sum()) for r in rows])
        kl = np.zeros(max(len(x) for x in full))
        for t in range(len(kl)):
            here = torch.stack([x[t] for x in full if len(x) > t]).double()
            mean = here.exp().mean(0)
            kl[t] = float((here.exp() * (here - mean.clamp_min(1e-300).log())).sum(-1).mean())
        spread = kl.max() - kl.min()
        scaled = (kl - kl.min()) / spread if spread > 1e-9 else np.zeros(len(kl))
        take = lambda s, at, d=scaled: d[at : at + len(s.ids)]  # noqa: E731
        out.append(replace(group, rollouts=tuple(_with_extra(r, "divergence", take) for r in group.rollouts)))
    return out


def _with_extra(rollout: Rollout, name: str, values: Callable[[Segment, int], np.ndarray]) -> Rollout:
    """values(segment, how many tokens the model wrote before it) as an extra of each segment that the model wrote."""
    made, at = [], 0
    for s in rollout.segments:
        if s.role == "model":
            made.append(replace(s, extras={**s.extras, name: values(s, at)}))
            at += len(s.ids)
        else:
            made.append(s)
    return replace(rollout, segments=tuple(made))
