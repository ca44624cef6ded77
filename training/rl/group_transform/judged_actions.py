"""A process reward model that says why: each action on a screen is judged by what a frozen model says of it.

Chen et al. 2025, "GUI-Shepherd: Reliable Process Reward and Verification for Long-Sequence GUI Tasks" (arXiv 2509.23738), read
from the abstract: the scale and what is asked are our reading.

    the screen before the action, "<request> Action: click 1 2. Is it right?"  ->  a rationale, then yes or no
    p_k = P(yes) / (P(yes) + P(no)) after the rationale, by their first tokens        r_k = weight (p_k - centre)

r_k is the reward of turn k. The rationale is sampled, `rationale` tokens at most, up to <answer>; 0: none. A turn without an
action gets weight (0 - centre). Shapes: groups in and out, with the rewards of turns replaced; scores stay. The judge is the
reference: the policy before it learned, which stays as it is. A judge that is right no more often than by chance, and says no
more often than yes, teaches to give up early (docs/media.md).

Leaves out data of its own for the judge, and human labels: a program knows which steps are right, and the judge has learned from
the same demonstrations as the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from synth.types import Message, seed_for
from training.env.screen import ACT
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.rl.group_transform._steps import paid
from training.rl.rollout_services import RolloutServices
from training.rollout.torch_sampler import TorchSampler
from training.types import Group, Rollout

GIVES = ("turn_reward",)
NEEDS = {"reference"}
ASK = "{request} Action: {action}. Is it right?"
OPEN = "<answer>"


def judged_actions(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    weight: float = 0.5,
    centre: float = 0.5,
    rationale: int = 12,
) -> list[Group]:
    if rationale < 0:
        raise ValueError(f"judged_actions: rationale is {rationale}: it is a number of tokens, 0 for none")
    rollouts = [r for g in groups for r in g.rollouts]
    told = [asked(r) for r in rollouts]
    flat = [m for each in told for m in each if m is not None]
    given = iter(believed(services, flat, rationale, tuple(int(x) for x in rng.integers(0, 2**31, 2))))
    scored = [
        paid(r, weight * (np.array([0.0 if m is None else next(given) for m in each]) - centre))
        for r, each in zip(rollouts, told, strict=True)
    ]
    left = iter(scored)
    return [replace(g, rollouts=tuple(next(left) for _ in g.rollouts)) for g in groups]


def asked(rollout: Rollout) -> list[Message | None]:
    """What the judge is asked about each turn of the model; None for a turn without an action."""
    request = rollout.problem.question.rpartition("\n")[2]
    shown: tuple[str, ...] = ()
    out: list[Message | None] = []
    for m in rollout.info.get("messages", ()):
        if m.role != "assistant":
            shown = m.media[-1:] or shown
            continue
        match = ACT.search(m.content)
        text = ASK.format(request=request, action=match[1]) if match else ""
        out.append(Message(role="user", content="<image>" * len(shown) + text, media=shown) if match else None)
    turns = sum(s.role == "model" for s in rollout.segments) if rollout.segments else len(out)
    return [*out, *[None] * turns][:turns]  # a rollout of given ids has no messages


def believed(
    services: RolloutServices, messages: Sequence[Message], rationale: int, seed: tuple[int, ...]
) -> Sequence[float]:
    """P(yes) against P(no) for each question, after a sampled rationale."""
    if not messages:
        return []
    player, render, judge = services.player, services.player.renderer, services.reference
    if judge is None:
        raise ValueError(
            "judged_actions: there is no reference model to judge: the stage loads one for pieces that NEED it"
        )
    prompts = [render.prompt([m]) for m in messages]
    rationales = [""] * len(prompts)
    if rationale:
        seeds = [seed_for(*seed, "judged_actions", i) for i in range(len(prompts))]
        session = TorchSampler(judge, render.end_id, renderer=render).open(prompts, seeds)
        drawn = session.generate(replace(player.sampling, max_tokens=rationale))
        services.tokens += sum(len(s.ids) for s in drawn)
        rationales = [render.decode(s.ids).partition(OPEN)[0] for s in drawn]
    rows = []
    for prompt, why in zip(prompts, rationales, strict=True):
        begun = np.concatenate([prompt, render.encode(why + OPEN)])
        for word in ("yes", "no"):
            ids = np.concatenate([begun, render.encode(word)[:1]])
            rows.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(begun)))
    batch = pack(rows, device=str(next(judge.parameters()).device))
    logp = score(judge, batch, temperature=services.temperature).logp * batch.trainable
    yes, no = np.asarray(batch.row_sum(logp).tolist()).reshape(-1, 2).T
    return [float(p) for p in 1 / (1 + np.exp(np.clip(no - yes, -50, 50)))]
