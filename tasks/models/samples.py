"""What a policy that writes no tokens made in the first, the middle and the last step of `rl`, as pictures for people: a page beside the
curve, and conversations for MLflow's traces.

Samples are those that were played and learned from, with the noise of training, and none is drawn in addition: the run is the same with
and without them. PNGs are written by our own code, so nothing is to be installed for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from synth.pictures import name_of
from synth.types import Scored
from tasks.core.errors import UserError
from tasks.runtime.stage import Stage
from tasks.storage.pictures import data_url
from training.env.control._drawn import Drawing, drawer
from training.types import Group, Rollout

PAGE, ROWS = "samples.html", "samples.jsonl"
PROMPTS, EACH = 4, 4  # of a step the first prompts, and of each the first samples, whatever they scored
TRACES = 12  # conversations that MLflow is sent
OF_ALL = ("score", "return", "steps", "unpaid", "cut", "calls")  # parts of every score, which say nothing of the sample


class Samples:
    """The samples kept so far, one row each as `evaluate` keeps an episode. It is a part of a run that has a state (`train_loop.Part`)."""

    def __init__(self, draw: Callable[[Rollout], Drawing], steps: int) -> None:
        self._draw, self.at, self.rows = draw, {0, steps // 2, steps - 1}, []

    def see(self, step: int, groups: Sequence[Group]) -> None:
        """Keeps some of the groups of a step, if it is one of those that are kept."""
        if step in self.at:
            kept = [r for g in groups[:PROMPTS] for r in g.rollouts[:EACH]]
            self.rows += [self._row(step, i, r) for i, r in enumerate(kept)]

    def _row(self, step: int, i: int, rollout: Rollout) -> dict[str, Any]:
        drawing, score = self._draw(rollout), rollout.score
        for one in drawing.pictures:
            try:
                name_of(one)
            except ValueError as e:
                raise UserError(f"rl.control: the world's function `pictures` gave {e}") from None
        value = score.value if isinstance(score, Scored) else None
        parts = {k: v for k, v in score.parts.items() if k not in OF_ALL} if isinstance(score, Scored) else {}
        return {
            "run": f"rl, step {step}",
            "model": "rl",
            "problem": rollout.problem.id,
            "sample": i,
            "env": "control",
            "family": rollout.problem.family,
            "step": step,
            "group": rollout.group,
            "score": value,
            "parts": parts,
            "outcome": "unscorable" if value is None else f"score {value:.3g}",
            "said": drawing.text,
            "answer": "",
            "messages": [
                {"role": "user", "content": drawing.prompt},
                {"role": "assistant", "content": drawing.text, "pictures": [data_url(one) for one in drawing.pictures]},
            ],
        }

    def state(self) -> list[dict[str, Any]]:
        return list(self.rows)

    def load_state(self, state: list[dict[str, Any]]) -> None:
        self.rows = list(state)

    def write(self, stage: Stage, page: str) -> None:
        """The page (HTML) and the rows, as outputs of the stage, as an artifact and as traces of its run."""
        with (stage.out / ROWS).open("w", encoding="utf-8") as f:
            f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self.rows)
        (stage.out / PAGE).write_text(page, encoding="utf-8")
        stage.artifact(stage.out / PAGE)
        stage.episodes(stage.out / ROWS, TRACES)


def shown(world: Any, steps: int) -> Samples | None:
    """What keeps the samples of a run in this world; None where there is nothing to look at."""
    draw = drawer(world)
    return None if draw is None else Samples(draw, steps)
