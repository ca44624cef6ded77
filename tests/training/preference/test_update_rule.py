"""An update rule of the user's own: one file in `pieces/` and one recipe, and the stage's parts call its hooks."""

import copy
import sys

import numpy as np
import pytest
import tiny

import training.preference.update_rule as package
from tasks.lab import toy
from tasks.planning import pieces, plan
from training.learner.learner import Learner, Optim
from training.learner.pack import Row, pack
from training.preference.objective import PairObjective
from training.preference.on_policy_pairs import SampledPairs
from training.preference.rounds import Rounds, read

FILES = {
    "update_rule/gentle.py": """
from training.preference.update_rule import UpdateRule

PROVIDES = {"history"}

class gentle(UpdateRule):
    def __init__(self, *, shift: float = 0.0):
        self.shift, self.began = shift, []

    def begin(self, i, learner):
        self.began.append(i)

    def asked(self, problems, rng, player):
        return [(p, lambda value, rollout: self.shift - value) for p in problems]

    def observe(self, batch, reference, logp):
        sums = batch.row_sum(logp(reference, batch)) + self.shift
        batch.add("history", sums - sums, "row")

    def state(self):
        return {"began": list(self.began)}

    def load_state(self, state, learner):
        self.began = state["began"]
""",
    "recipes/mine.yaml": "id: mine\nstages:\n  prefer:\n    loss: {piece: mnpo, rho: 1.0, eta: 0.1}\n"
    "    update_rules: [{piece: gentle, shift: 2.0}]\n",
}


@pytest.fixture
def own(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / "pieces" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "params.yaml").write_text("recipe: mine")
    monkeypatch.chdir(tmp_path)
    before = list(package.__path__)
    yield tmp_path
    package.__path__[:] = before
    sys.modules.pop(f"{package.__name__}.gentle", None)


def test_a_rule_of_the_users_own_acts_in_every_part_of_the_stage(own):
    planned = plan.plans(own)["prefer"]
    assert "own/update_rule/gentle.py" in planned["sources"] and planned["needs"] == ["history", "reference"]
    knobs = pieces.bind_all(planned["pieces"], planned["params"])
    (rule,) = rules = [one() for one in knobs["update_rules"]]

    source = SampledPairs(problems=[], player=None, prompts=1, samples=2, seed=0, rules=rules)
    _, (worths,) = source.asked(toy.problems(1), np.random.default_rng(0))
    (group,) = toy.groups([[1.0, 0.0]])
    chosen, _ = source.unit(group, 0, worths)
    assert np.array_equal(chosen.ids, np.asarray(group.rollouts[1].ids)), "the rule prefers what scores less"

    learner = Learner(tiny.build(init_range=0.1), Optim(lr=1e-2, warmup=0, decay="constant"))
    objective = PairObjective(
        loss=knobs["loss"], reference=copy.deepcopy(learner.model), policy=learner.model, rules=rules
    )
    keeper = Rounds(read([{}, {}], 2), learner, objective, starts_equal=True)
    rows = [Row(ids=i, trainable=np.arange(len(i)) >= 4, group=n // 2) for n, i in enumerate(tiny.ids(9, 8, 7, 10))]
    start = [p.detach().clone() for p in learner.model.parameters()]
    for i in range(2):
        batches, _ = keeper.begins(i, lambda step: ([pack(rows)], {}))(0)
        for batch in batches:
            objective.prepare(batch)
            learner.step(batch, objective, rows_per_unit=2)
    assert rule.began == [0, 1] and keeper.state()["rules"] == [{"began": [0, 1]}]
    assert any(not np.array_equal(p.detach(), q) for p, q in zip(learner.model.parameters(), start, strict=True))
    keeper.load_state({**keeper.state(), "rules": [{"began": [7]}]})
    assert rule.began == [7]
