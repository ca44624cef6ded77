"""Rounds of preference optimisation: the data of each round, and what happens to the reference when it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from synth.types import UserError, nearest
from training.learner.learner import Learner
from training.learner.loop import Source
from training.model.lora import folded
from training.preference.objective import PairObjective
from training.preference.subspace import Subspaces
from training.types import Batch


@dataclass(frozen=True, kw_only=True)
class RoundSpec:
    """One round.

    steps     0: an equal share of the stage's
    pairs     "clean", or "sampled": the policy's own rollouts, scored by the verifiers
    (training/preference/on_policy_pairs.py)
    source    use only cleaned pairs of this source, "injected_errors" or "injected_errors/countdown" ("": all)
    easiest   use only this share of them, those with the largest margins
    hardest   use only the share with the smallest margins; with "sampled": only the problems of those pairs
    renew     the policy becomes its reference when the round begins
    every     and again every so many steps of the round (0: never)
    protect   protect the changes of earlier rounds: this round's update stays orthogonal to them (to the share `energy`
              of them)
    layers    train only these layers ([]: all)
    """

    steps: int = 0
    pairs: str = "clean"
    source: str = ""
    easiest: float = 1.0
    hardest: float = 1.0
    renew: bool = False
    every: int = 0
    protect: bool = False
    energy: float = 0.9
    layers: Sequence[int] = field(default_factory=tuple)


def read(rounds: Sequence[Any], steps: int) -> list[RoundSpec]:
    """The rounds of a plan, their steps filled in so that they add up to `steps`. Raises UserError for an invalid
    round."""
    known = {f.name: type(f.default) if f.name != "layers" else list for f in fields(RoundSpec)}
    specs = []
    for i, spec in enumerate(rounds):
        where = f"prefer.rounds[{i}]"
        if not isinstance(spec, Mapping):
            raise UserError(f"{where} must be a mapping such as {{pairs: sampled, renew: true}}, not {spec!r}")
        for key, value in spec.items():
            if key not in known:
                raise UserError(f"{where}: unknown key {key!r}: {nearest(key, known)}")
            kind = (int, float) if known[key] is float else known[key]
            if not isinstance(value, kind) or (isinstance(value, bool) and known[key] is not bool):
                raise UserError(f"{where}.{key} must be a {known[key].__name__}, not {value!r}")
        one = RoundSpec(**spec)
        if one.pairs not in ("clean", "sampled"):
            raise UserError(f"{where}.pairs is {one.pairs!r}: choose 'clean' or 'sampled'")
        if not (0 < one.easiest <= 1 and 0 < one.hardest <= 1) or min(one.steps, one.every) < 0:
            raise UserError(
                f"{where}: easiest and hardest are shares above 0 and at most 1, steps and every are 0 or more"
            )
        specs.append(one)
    left, open_ = steps - sum(t.steps for t in specs), [i for i, t in enumerate(specs) if not t.steps]
    if not specs or left < len(open_) or (left and not open_):
        raise UserError(f"prefer.rounds: the steps of the {len(specs)} rounds do not add up to prefer.steps = {steps}")
    for n, i in enumerate(open_):
        specs[i] = replace(specs[i], steps=left * (n + 1) // len(open_) - left * n // len(open_))
    return specs


class Rounds:
    """Runs the rounds with the driver: it renews references, and keeps updates within their bounds.

    starts_equal   whether policy and reference are the same model before the first step: the objective then asserts the
                   first loss
    It tells the update rules of the objective when a round begins, and stores their state.
    """

    def __init__(
        self, specs: Sequence[RoundSpec], learner: Learner, objective: PairObjective, *, starts_equal: bool
    ) -> None:
        self.specs, self.learner, self.objective = specs, learner, objective
        self.equal, self.renewed = starts_equal, False
        energies = [t.energy for t in specs if t.protect]
        self.spaces = Subspaces(learner, energy=energies[0] if energies else 0.9)
        self.bound = bool(energies) or any(t.layers for t in specs)

    def begins(self, i: int, source: Source) -> Source:
        """The source of round i; the round begins at its first step."""

        def made(step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
            if step == 0:
                self._begin(i)
            return source(step)

        return made

    def _begin(self, i: int) -> None:
        spec = self.specs[i]
        for rule in self.objective.rules:
            rule.begin(i, self.learner)
        if spec.renew:
            self._renew()
        elif i == 0 and self.objective.reference is not None:
            self.objective.state["equal"] = self.equal
        if self.bound:
            names = self.spaces.names if spec.layers else ()
            mine = tuple(f".layers.{n}." for n in spec.layers)
            self.spaces.begin(protect=spec.protect, frozen=frozenset(n for n in names if not any(m in n for m in mine)))

    def _renew(self) -> None:
        if self.objective.reference is not None:
            self.learner.publish(every=True)  # if weights are split, each process briefly needs the whole model
            self.objective.reference.load_state_dict(folded(self.learner.whole))
            self.learner.let_go()
            self.objective.state["equal"] = self.renewed = True

    def after(self, i: int, step: int, metrics: Mapping[str, float]) -> None:
        """Called after each step of round i."""
        if self.spaces.active:
            self.spaces.project()
        if self.specs[i].every and (step + 1) % self.specs[i].every == 0:
            self._renew()

    def state(self) -> dict[str, Any]:
        reference = self.objective.reference
        return {
            "objective": self.objective.state,
            "reference": reference.state_dict() if reference is not None and self.renewed else None,
            "rules": [rule.state() for rule in self.objective.rules],
            "spaces": self.spaces.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.objective.state.clear()
        self.objective.state.update(state["objective"])
        if self.objective.reference is not None and state["reference"] is not None:
            self.objective.reference.load_state_dict(state["reference"])
            self.renewed = True
        for rule, saved in zip(self.objective.rules, state["rules"], strict=True):
            rule.load_state(saved, self.learner)
        self.spaces.load_state(state["spaces"])
