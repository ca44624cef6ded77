"""Few frames of a clip are shown at first, and the model asks for more before it answers: problems of the family
clip_questions.

"FrameMind: Frame-Interleaved Video Reasoning via Reinforcement Learning" 2025 (arXiv 2509.24008) and "FrameThinker: Learning
to Think with Long Videos via Multi-Turn Frame Spotlighting" 2025 (arXiv 2509.24304), read from abstracts.

The first message shows `first` frames, spread evenly, each after its number. A turn is `<frames>6 9</frames>`, to which up to
`each` frames from the 6th to the 9th are shown, or an answer, which the problem's verifier scores. More than `most` requests
end the episode with score 0. Where a thought before a request names a stretch, "look 6 9", it has to be the one that is
requested. Parts: `calls`, `answered`, `sound` (1 if every request is in range, none is repeated, and thoughts and requests
agree), `share` (frames shown over all frames), `looked` (1 if anything was requested).

`shown: white` blanks the frames that are requested, as a control. `rungs` are ways to show the clip at first, as pairs of
frames and side in pixels: many small ones or few large ones. A problem whose `args` have a `rung` begins so (the group
transform ladder gives the rollouts of a group different ones); others begin with `first` frames of full size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, missing, verify
from training.env import system
from training.env.look import pictures
from synth.pictures import HELD

TOOLS = "draw"
BUDGETS = ("most",)
ENDS = "an answer; more than `most` requests; a turn without either"
GIVES = ("calls", "answered", "sound", "share", "looked")
Blank = Literal["picture", "white"]
_ASK = re.compile(r"<frames>(\d{1,3}) (\d{1,3})</frames>")
_TOLD = re.compile(r"look (\d{1,3}) (\d{1,3})")


def spread(first: int, last: int, n: int) -> list[int]:
    """Up to n whole numbers from first to last, evenly spread, both ends among them if n is at least 2."""
    if n == 1:
        return [(first + last) // 2]
    return sorted({round(first + (last - first) * k / (n - 1)) for k in range(n)})


def smaller(picture: np.ndarray, side: int) -> np.ndarray:
    """[H, W, 3] uint8 of the same height and width as before, as if it had been sent at `side` pixels: means of blocks."""
    block = max(1, picture.shape[0] // side)
    height, width = (n // block * block for n in picture.shape[:2])
    blocks = picture[:height, :width].reshape(height // block, block, width // block, block, 3).mean(axis=(1, 3))
    return np.kron(blocks, np.ones((block, block, 1))).round().astype(np.uint8)


@dataclass(frozen=True)
class Frames:
    first: int
    each: int
    most: int
    shown: Blank
    rungs: Sequence[Sequence[int]]
    instructions: str
    draws = True  # the player is given the tool `draw`

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        args = dict(problem.args)
        rung = args.pop("rung", None)
        problem = replace(problem, args=args)
        clip = pictures(problem, tools, "picture")
        n, side = self.rungs[rung] if rung is not None else (self.first, clip[0].shape[0])
        state = {"problem": problem, "clip": clip, "asked": [], "seen": set(), "sound": True}
        question = problem.question.rpartition("\n")[2]
        opened = self._message(state, [smaller(x, side) for x in clip], spread(1, len(clip), n))
        opened = replace(opened, role="user", content=f"{opened.content} of {len(clip)}. {question}")
        return state, [*system(self.instructions), *problem.prompt[:-1], opened]

    def _message(self, state: dict, clip: Sequence[np.ndarray], numbers: Sequence[int]) -> Message:
        state["seen"] |= set(numbers)
        return Message(
            role="tool",
            content=" ".join(f"{n} <image>" for n in numbers),
            media=tuple(HELD.add(clip[n - 1]) for n in numbers),
        )

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        match = _ASK.search(text)
        if match is None:
            answer = extract_answer(text)
            score: Score = missing(text) if answer is None else verify(state["problem"], answer)
            return [], True, self._scored(state, score, answered=answer is not None)
        a, b = int(match[1]), int(match[2])
        told = _TOLD.search(text[: match.start()])
        fits = 1 <= a <= b <= len(state["clip"])
        agrees = told is None or (int(told[1]), int(told[2])) == (a, b)
        state["sound"] &= fits and agrees and (a, b) not in state["asked"]
        state["asked"].append((a, b))
        if len(state["asked"]) > self.most:
            return [], True, self._scored(state, Scored(value=0.0, parts={"parsed": 1.0}), answered=False)
        if not fits:
            return [Message(role="tool", content="no such frames")], False, None
        clip = state["clip"] if self.shown == "picture" else [np.full_like(x, 255) for x in state["clip"]]
        return [self._message(state, clip, spread(a, b, self.each))], False, None

    def _scored(self, state: dict, score: Score, *, answered: bool) -> Score:
        if not isinstance(score, Scored):
            return score
        parts = {
            "calls": float(len(state["asked"])),
            "looked": float(bool(state["asked"])),
            "answered": float(answered),
            "sound": float(state["sound"]),
            "share": len(state["seen"]) / len(state["clip"]),
        }
        return Scored(value=score.value, parts={**score.parts, **parts})


def frames(
    *,
    first: int = 4,
    each: int = 4,
    most: int = 3,
    shown: Blank = "picture",
    rungs: tuple = ((8, 8), (4, 16), (2, 32)),
    instructions: str = "",
) -> Frames:
    """first, each: frames of the first message and of a request. most: requests. shown: picture or white, of frames that are
    requested. rungs: pairs of frames and pixels. instructions: a system message (empty: none)."""
    if min(first, each) < 1 or most < 0:
        raise ValueError(
            f"frames: first is {first}, each {each}, most {most}: show at least one frame, allow 0 or more"
        )
    if shown not in get_args(Blank):
        raise ValueError(f"frames: shown is {shown!r}: name picture or white")
    return Frames(first, each, most, shown, rungs, instructions)
