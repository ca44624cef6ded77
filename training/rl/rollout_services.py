"""The services for group transforms: play a problem again, or turn given text into a rollout with the policy's
log-probs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import nn

from synth.types import Message, Problem, Score, Scored
from training.learner.learner import score
from training.learner.pack import pack, rollout_row
from training.env import opening
from training.model.lora import use
from training.rl.influence import influence
from training.rollout.conversation import judged
from training.rollout.play import Player
from training.types import Group, Rollout, Segment


def _nobody(*_: Any) -> None:
    raise ValueError('the policy cannot begin again: the piece that asks for it must name it, NEEDS = {"restart"}')


@dataclass(kw_only=True)
class RolloutServices:
    """One step's services.

    seed     the parts that, with a counter, are hashed into the seeds of what is played
    tokens   how many tokens were sampled
    attempt  how often the step has drawn again because of filters
    problems   all that the run draws from
    reference  the model before training, which stays as it is; there where a piece NEEDS "reference"
    restart  (rollouts, passes, rows, rng): the policy begins again from its first weights (training/rl/restart.py); there where a piece
             NEEDS "restart"
    """

    player: Player
    seed: tuple[Any, ...] = ()
    temperature: float = 1.0
    tokens: int = 0
    attempt: int = 0
    problems: Sequence[Problem] = ()
    reference: nn.Module | None = None
    restart: Callable[[Sequence[Rollout], int, int, np.random.Generator], None] = _nobody
    played: int = field(default=0, init=False)

    def play(self, problem: Problem, samples: int, group: str, *, opening: str = "") -> Group:
        """`samples` rollouts of a problem under the name `group`; `opening` is text that the first turn begins with,
        never trained on."""
        self.played += 1
        opened = [self.player.renderer.encode(opening)] if opening else []
        (played,) = self.player.play([problem], samples, *self.seed, self.played, openings=opened)
        self.tokens += sum(r.n_model for r in played.rollouts)
        return Group(id=group, rollouts=tuple(replace(r, group=group) for r in played.rollouts))

    def branch(self, ways: Sequence[tuple[Rollout, int]], samples: int) -> list[tuple[Rollout, ...]]:
        """For each rollout and number of turns: `samples` rollouts that go on from these first turns of the model, which
        they hold as they were sampled, in the group of the rollout. For environments that answer the same to the same
        turns."""
        self.played += 1
        before = [[s for s in r.segments if s.role == "model"][:n] for r, n in ways]
        played = self.player.play([r.problem for r, _ in ways], samples, *self.seed, self.played, resumed=before)
        given = sum(samples * len(s.ids) for turns in before for s in turns)
        self.tokens += sum(r.n_model for g in played for r in g.rollouts) - given
        return [
            tuple(replace(r, group=parent.group) for r in g.rollouts)
            for g, (parent, _) in zip(played, ways, strict=True)
        ]

    def by_base(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """The rollouts with the log-probs that the base gives their turns, where policies are adapters on one; as they are
        where one policy plays."""
        if not self.player.plays:
            return list(rollouts)
        use(self.player.sampler.model, None)
        return self._read(rollouts)

    def say(self, problem: Problem, turns: Sequence[str], group: str) -> Rollout:
        """Plays these given turns of the model in the environment; returns an off_policy rollout with the policy's own
        log-probs of them."""
        return self.tell(problem, [self.player.renderer.turn(t) for t in turns], group)

    def again(self, rollout: Rollout, problem: Problem, group: str) -> Rollout:
        """The same turns in answer to another prompt (the one without the help they had), as an off_policy rollout."""
        return self.tell(problem, [s.ids for s in rollout.segments if s.role == "model"], group)

    def until(self, rollout: Rollout, marker: str) -> tuple[str, int]:
        """The text of the first turn before a marker, and how many of its tokens that is; ("", 0) if the marker is not
        in it."""
        first = next(s for s in rollout.segments if s.role == "model")
        decode = self.player.renderer.decode
        for n in range(len(first.ids) if marker in decode(first.ids) else 0):
            if marker in decode(first.ids[: n + 1]):
                return decode(first.ids[:n]), n
        return "", 0

    def influence(self, rollout: Rollout, marker: str, nuisances: int, rng: np.random.Generator) -> dict[str, float]:
        """zx, xy, zy: the influence of the prompt on the rationale, of the rationale on the answer, and of the prompt
        on the answer (training/rl/influence.py); the answer is the first turn from the marker on. Empty if the first
        turn has no marker."""
        before, first = (np.asarray(s.ids) for s in rollout.segments[:2])
        if marker not in self.player.renderer.decode(first):
            return {}
        start, n, end = len(before), self.until(rollout, marker)[1], len(before) + len(first)
        ids, z, x, y = np.concatenate([before, first]), (0, start), (start, start + n), (start + n, end)
        model = self.player.sampler.model
        return {
            name: influence(model, ids, of, to, nuisances, rng)
            for name, of, to in (("zx", x, z), ("xy", y, x), ("zy", y, z))
        }

    def tell(self, problem: Problem, turns: Sequence[np.ndarray], group: str) -> Rollout:
        env, render = self.player.envs[problem.env], self.player.renderer
        state, messages = opening(env, problem, self.player.tools)
        segments = [Segment(ids=render.prompt(messages), role="env")]
        result: Score = Scored(value=0.0, parts={"truncated": 1.0})
        for ids in turns:
            text = render.decode(ids)
            replies, over, score = env.step(state, text)
            blank = np.zeros(len(ids), dtype=np.float32)
            segments.append(
                Segment(
                    ids=ids, role="model", logp=blank, entropy=blank, stop="end", reward=state.pop("step_reward", None)
                )
            )
            history = state.pop("history", None)
            messages += [Message(role="assistant", content=text), *(replies if history is None else history)]
            if over:
                result = score if score is not None else result
                segments = judged(segments, state.pop("turn_rewards", None))
                break
            shown = render.observation(replies) if history is None else render.prompt(history)
            segments.append(Segment(ids=shown, role="env", context_reset=history is not None))
        told = Rollout(
            problem=problem,
            group=group,
            segments=tuple(segments),
            score=result,
            info={"off_policy": True, "messages": tuple(messages)},
            text="\n".join(f"[{m.role}] {m.content}" for m in messages),
        )
        return self._read([told])[0]

    def _read(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """The rollouts with the log-probs and entropies that the model gives their turns now, each after what its row has
        before it."""
        rows = [
            rollout_row(replace(rollout, segments=(replace(first, context_reset=False), *rest)), 0.0, 0)
            for rollout in rollouts
            for first, *rest in rollout.forks
        ]
        batch = pack(rows, device=str(next(self.player.sampler.model.parameters()).device))
        stats = score(self.player.sampler.model, batch, temperature=self.temperature)
        cuts = np.cumsum([len(s.ids) for rollout in rollouts for s in rollout.segments])[:-1]
        assert stats.entropy is not None  # `token_stats` always gives it
        read = zip(*(np.split(x.cpu().numpy(), cuts) for x in (stats.logp, stats.entropy)), strict=True)
        return [
            replace(
                rollout,
                segments=tuple(
                    replace(s, logp=a, entropy=b) if s.role == "model" else s
                    for s, (a, b) in zip(rollout.segments, read, strict=False)
                ),
            )
            for rollout in rollouts
        ]
