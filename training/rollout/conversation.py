"""One conversation of an episode as it grows: the rows of ids, the messages, and how it ended.

If an environment rewrites the history, the conversation continues as a separate row (`Segment.context_reset`). If it
continues from an earlier turn of the model, the row begins with the ids with which that turn was sampled: sampled
tokens are never rendered again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from synth.types import Message, Problem, Score, Scored, Unscorable, seed_for
from training.env import Env, is_live
from training.model.render import Renderer
from training.types import Rollout, Segment


@dataclass(kw_only=True)
class Conversation:
    """
    seed     of the rollout
    opened   ids with which the first turn begins: given, not sampled
    room     tokens that a conversation may have before a turn: its limit minus the limit of a turn
    state    the environment's
    offered  the tools that are rendered with the first messages
    score    None while it is running
    seconds  wall seconds of each message
    forks    for each row after the first the message with which it begins, and the turn that it continues
    cut      whether the last turn was cut after it was sampled, so that the sampler holds more than the row
    plays    role of the environment -> the policy that plays it, if there are several
    """

    problem: Problem
    group: str
    seed: int
    opened: np.ndarray
    env: Env
    renderer: Renderer
    room: int
    state: dict = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    offered: Sequence[Any] = ()
    score: Score | None = None
    segments: list[Segment] = field(default_factory=list)
    used: int = 0
    seconds: list[float] = field(default_factory=list)
    forks: list[tuple[int, int | None]] = field(default_factory=list)
    cut: bool = False
    plays: Mapping[str, str] = field(default_factory=dict)

    @property
    def policy(self) -> str:
        """Who speaks next. Raises LookupError for a role that no policy plays."""
        if not self.plays:
            return ""
        if (role := self.state.get("speaker", "")) not in self.plays:
            raise LookupError(
                f"the environment {self.problem.env!r} lets {role or 'nobody'!r} speak, and the policies play "
                f"{', '.join(self.plays)}: name its roles in rl.policies, or choose an environment with these"
            )
        return self.plays[role]

    @property
    def live(self) -> bool:
        return is_live(self.env)

    @property
    def fork_seed(self) -> int:
        """The seed of the row that begins now."""
        return seed_for(self.seed, "fork", len(self.segments))

    def start(self, tools: Any) -> None:
        self.state, shown = self.env.start(self.problem, tools)
        self.messages = list(shown)
        self.seconds = [0.0] * len(shown)
        self.offered = self.state.pop("offered", ())
        self.score = self.state.pop("over", None)

    def prompted(self, ids: np.ndarray) -> bool:
        """ids: the rendered prompt. Returns False if the prompt leaves no room for a turn; True otherwise, also if the
        conversation was over before."""
        ids = np.concatenate([ids, self.opened])
        self.segments, self.used = [Segment(ids=ids, role="env")], len(ids)
        return self.score is not None or self._fits()

    def _fits(self) -> bool:
        """Whether there is room for another turn; if not, the conversation ends here."""
        if self.used > self.room:
            self.score = Scored(value=0.0, parts={"truncated": 1.0})
        return self.used <= self.room

    def resume(self, turns: Sequence[Segment]) -> None:
        """Takes these turns, as they were sampled in an earlier conversation of the same environment, before any is
        sampled; until the conversation is over."""
        for segment in turns:
            text = self.turn(segment, 0.0)
            if text is None or self.answered(*self.env.step(self.state, text), 0.0) is None:
                return

    @property
    def row(self) -> np.ndarray:
        """The ids after which the next turn is sampled."""
        return _row_until(self.segments, len(self.segments) - 1)

    def turn(self, segment: Segment, seconds: float) -> str | None:
        """The model's turn as it was sampled. Returns the text for the environment, or None if the conversation is
        over."""
        given = self.opened if len(self.segments) == 1 else segment.ids[:0]
        segment, text, self.cut = _shortened(
            segment, given, self.state.pop("most", None), self.state.pop("stops", ()), self.renderer
        )
        if self.plays:
            segment = replace(segment, speaker=self.state.get("speaker", ""), policy=self.policy)
        self.segments.append(segment)
        self.messages.append(Message(role="assistant", content=text))
        self.seconds.append(seconds)
        if segment.stop == "lost":
            self.score = Unscorable(reason="engine_lost: the engine gave no answer, twice")
            return None
        if segment.stop == "length" and not self.live:  # an unfinished turn is never acted on
            self.score = Scored(value=0.0, parts={"truncated": 1.0})
            return None
        if self.live:
            self.state |= {"segment": segment, "prompt_tokens": self.used}
            if self.state.pop("logprobs", False):
                self.state["tokens"] = [self.renderer.decode(segment.ids[k : k + 1]) for k in range(len(segment.ids))]
        return text

    def answered(
        self, replies: Sequence[Message], over: bool, score: Score | None, seconds: float
    ) -> tuple[np.ndarray, bool] | None:
        """Adds the environment's messages. Returns None if the conversation is over, else the ids after which its next
        turn is sampled, and whether they are a whole row, which the sampler does not hold."""
        self.score = score
        wrote = self.segments[-1]
        self.segments[-1] = replace(wrote, reward=self.state.pop("step_reward", None))
        history, follows = self.state.pop("history", None), self.state.pop("follows", None)
        tools = self.state.pop("offered", ())
        written = replies if history is None else history
        shown_from = len(self.messages)
        self.messages.extend(written)
        self.seconds.extend([seconds, *[0.0] * (len(written) - 1)] if written else [])
        if over:
            self.segments = judged(self.segments, self.state.pop("turn_rewards", None))
            return None
        ids, fork = (
            (self.renderer.prompt(history, tools), True) if history is not None else self._next(replies, follows)
        )
        self.used = len(ids) + (0 if fork else self.used + len(wrote.ids))
        if not self._fits():
            return None
        self.segments.append(Segment(ids=ids, role="env", context_reset=fork))
        if fork:
            self.forks.append((shown_from, follows))
        elif self.cut or self.policy != wrote.policy:  # the sampler holds keys and values of another policy
            return _row_until(self.segments, len(self.segments) - 1), True
        return ids, fork

    def _next(self, replies: Sequence[Message], follows: int | None) -> tuple[np.ndarray, bool]:
        """Ids of the replies; if the turn `follows` is not the last one, after the ids of the row up to that turn."""
        ids = self.renderer.observation(replies)
        wrote = [k for k, s in enumerate(self.segments) if s.role == "model"]
        end = wrote[-1 if follows is None else follows]
        if self.segments[end].ids[-1] != self.renderer.end_id:
            ids = np.append(self.renderer.end_id, ids)  # the token that ends the turn was not written
        fork = end != wrote[-1]
        return (np.concatenate([_row_until(self.segments, end), ids]) if fork else ids), fork

    def rollout(self, timed: bool) -> Rollout:
        """The finished conversation. timed: whether `info` has the seconds."""
        assert self.score is not None, "the conversation is not over"
        return Rollout(
            problem=self.problem,
            group=self.group,
            segments=tuple(self.segments),
            score=self.score,
            text="\n".join(f"[{m.role}] {m.content}" for m in self.messages),
            info={
                "calls": self.state.get("calls", 0),
                "messages": tuple(self.messages),
                **({"forks": tuple(self.forks)} if self.forks else {}),
                **({"requests": tuple(self.state.get("requests", ()))} if self.live else {}),
                **({"seconds": tuple(self.seconds)} if timed else {}),
            },
        )


def _shortened(
    segment: Segment, opened: np.ndarray, most: int | None, stops: Sequence[str], renderer: Renderer
) -> tuple[Segment, str, bool]:
    """The turn up to `most` tokens and to the token that completes one of `stops`, its text without that stop string,
    and whether anything was cut. opened: ids with which the turn begins. A turn cut in this way is what a sampler with
    these limits would have drawn from the same random numbers."""

    def text(k: int) -> str:
        return renderer.decode(np.concatenate([opened, segment.ids[:k]]))

    n, why = len(segment.ids), segment.stop
    if most is not None and most < n:
        n, why = most, "length"
    shown = text(n)
    if any(s in shown for s in stops):
        n = next(k for k in range(1, n + 1) if any(s in text(k) for s in stops))
        shown, why = text(n), "stop_string"
        shown = shown[: min(at for s in stops if (at := shown.find(s)) >= 0)]
    if n == len(segment.ids):
        return replace(segment, stop=why) if why != segment.stop else segment, shown, False
    kept = {
        name: getattr(segment, name)[:n] for name in ("ids", "logp", "entropy") if getattr(segment, name) is not None
    }
    extras = {name: x[:n] for name, x in segment.extras.items()}
    return replace(segment, stop=why, extras=extras, **kept), shown, True


def _row_until(segments: Sequence[Segment], end: int) -> np.ndarray:
    """Ids of the row of segment `end`, from its start to that segment's last token."""
    begin = max((k for k in range(end + 1) if segments[k].context_reset), default=0)
    return np.concatenate([s.ids for s in segments[begin : end + 1]])


def judged(segments: list[Segment], rewards: Sequence[float] | None) -> list[Segment]:
    """The segments with rewards of turns that an environment gave only at the end, one for each turn of the model."""
    if rewards is None:
        return segments
    given = iter(rewards)
    return [replace(s, reward=float(next(given))) if s.role == "model" else s for s in segments]
