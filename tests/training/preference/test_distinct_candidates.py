"""Where all candidates are alike others are drawn, hotter each time; the first stays, and what differs is left as it is."""

from dataclasses import dataclass, field

import numpy as np
import pytest


from synth.types import Sampling, Scored
from tasks.lab import toy
from training.preference.update_rule.distinct_candidates import distinct_candidates
from training.types import Group, Rollout, Segment


def group(name, *tokens):
    segments = (Segment(ids=np.array([t]), role="env") for t in tokens)
    return Group(
        id=name,
        rollouts=tuple(
            Rollout(problem=toy.problems(1)[0], group=name, segments=(s,), score=Scored(value=float(s.ids[0])))
            for s in segments
        ),
    )


@dataclass
class Heated:
    """Says 7 alone until it is as hot as `melts`."""

    melts: float
    sampling: Sampling = field(default_factory=lambda: Sampling(temperature=1.0))
    heard: list = field(default_factory=list)

    def play(self, problems, samples, *seed):
        self.heard.append((len(problems), self.sampling.temperature, seed))
        hot = self.sampling.temperature >= self.melts
        return [group(f"new/{i}", *([7, 8, 9] if hot else [7, 7, 7])) for i, _ in enumerate(problems)]


def test_only_what_is_alike_is_drawn_again_and_hotter_until_it_differs():
    player = Heated(melts=4.0)
    groups = [group("a", 5, 5, 5), group("b", 1, 2, 2)]
    changed = distinct_candidates(tries=3, heat=2.0).played(toy.problems(2), groups, player, (0, "sampled", 4))
    assert [x[:2] for x in player.heard] == [(1, 2.0)], "5 first and 7 after it differ"
    assert changed[1] is groups[1] and changed[0].id == "a" and list(changed[0].rewards) == [5, 7, 7]

    player = Heated(melts=4.0)
    changed = distinct_candidates().played(toy.problems(1), [group("a", 7, 7, 7)], player, (0, "sampled", 4))
    assert [x[1] for x in player.heard] == [2.0, 4.0] and list(changed[0].rewards) == [7, 8, 9]
    assert len({x[2] for x in player.heard}) == 2, "each try has seeds of its own"


def test_what_never_differs_is_given_up():
    player = Heated(melts=np.inf)
    unchanged = distinct_candidates(tries=3).played(toy.problems(1), [group("a", 7, 7, 7)], player, ())
    assert len(player.heard) == 3 and list(unchanged[0].rewards) == [7, 7, 7]


@pytest.mark.parametrize("knobs", [{"tries": 0}, {"heat": 1.0}])
def test_no_more_draws_is_a_sentence(knobs):
    with pytest.raises(ValueError, match="draw again at least once, and hotter"):
        distinct_candidates(**knobs)
