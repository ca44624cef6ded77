"""Grounding of stretches of time whose reasoning has to cite them, in two phases.

"MUSEG: Reinforcing Video Temporal Understanding via Timestamp-Aware Multi-Segment Grounding" 2025 (arXiv 2505.20715), read
from a summary: how citations are rated, the weights and the lengths of the phases are our reading.

    R = segment * r + time * c * [t < phase] + format * x_answered
    c = mean over the cited stretches of their largest overlap with a stretch of the answer, 0 where none is cited

Shapes: one reward per rollout in (r, the match of the answer, as the verifier segments has it) and out; unscorable stays NaN.
Cited is what is written as "2-5" within <think> of the last turn, the answer is that of the same turn. t counts the steps,
`state["step"]`: after `phase` of them the answer alone is paid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from synth.verify import extract_answer
from synth.verify.segments import overlap, read
from training.rl.reward import part
from training.types import Group, Rewards, Rollout

EXAMPLES = ("<think>2-3; 5-8</think>", "<think>1-4</think>")
READS = ("answered",)
_THINK = re.compile(r"<think>([^<]*)</think>")
_CITED = re.compile(r"(\d{1,5})-(\d{1,5})")


def cited_spans(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    segment: float = 1.0,
    time: float = 0.5,
    format: float = 0.1,
    phase: int = 400,
) -> Rewards:
    """segment, time, format: weights of the match, of citations and of having answered. phase: steps with citations paid."""
    if phase < 0:
        raise ValueError(f"cited_spans: phase is {phase}: name a number of steps, 0 or more")
    step = state.get("step", 0)
    state["step"] = step + 1
    weight = time if step < phase else 0.0
    out = []
    for group, r in zip(groups, rewards, strict=True):
        c = np.array([citations(rollout) for rollout in group.rollouts])
        total = segment * r + weight * c + format * part(group, r, "answered")
        out.append(np.where(np.isnan(r), np.nan, total))
    return out


def citations(rollout: Rollout) -> float:
    """How well the stretches cited in the last turn agree with its answer, from 0 to 1."""
    turns = [m.content for m in rollout.info.get("messages", ()) if m.role == "assistant"]
    text = turns[-1] if turns else rollout.text
    think = _THINK.search(text)
    answer = read(extract_answer(text) or "")
    cited = [(int(a), int(b)) for a, b in _CITED.findall(think[1])] if think else []
    if not answer or not cited:
        return 0.0
    return float(np.mean([max(overlap(c, a) for a in answer) if c[0] <= c[1] else 0.0 for c in cited]))
