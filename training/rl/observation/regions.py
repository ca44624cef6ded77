"""The region of a turn to which a token belongs: a tag, reasoning, or text within tags.

"ResT: Reshaping Token-Level Policy Gradients for Tool-Use Large Language Models", 2025 (arXiv 2509.21826).

extras["region"] on the model's tokens: 1 a tag such as `<search>`, 2 reasoning, 4 text within tags. A token belongs to
the region of its last character; the token that ends a turn is a tag. No forward pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from synth.types import Problem
from training.rl.observation import with_extra
from training.rollout.play import Player
from training.types import Group

TAG = re.compile(r"</?[a-z_]+>")


def regions(player: Player, groups: Sequence[Group], problems: Sequence[Problem], seed: tuple[Any, ...]) -> list[Group]:
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

    return [
        replace(g, rollouts=tuple(with_extra(r, "region", lambda s, _: codes(s.ids)) for r in g.rollouts))
        for g in groups
    ]
