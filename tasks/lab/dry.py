"""The dry step of a recipe: its stages as `espalier run --recipe NAME` composes them, on small data, in a second.

Checks of pieces cannot see that a recipe is not its method when it is run: a reward whose parts no source gives is always 0, a
clip bounds nothing while every step has one update, a stage adds a loss that the paper does not have. So the stages that the
recipe sets are run as they are (resolve, bind, stage function, the shipped constants), and looked at:

called       each piece that the recipe names is called
changes      swapped for its neutral element on the same inputs, what comes of it is another: the direction of a gradient, the
             advantages, which rollouts are played and trained on, or what is written (NEUTRAL says what stands for what)
weights      a stage that trains has moved its weights, by its own objective
parts        every part of a score and every reward of a turn that a piece reads is there in some rollout
terms        no term is in the loss that the recipe did not ask for

What a recipe asks of the user, a teacher or a judge, is stood in for: another run of the small model, and a judge that likes right
answers and then short ones. Sizes alone are others than the shipped ones (SIZES): a model of a few thousand weights, three steps, a few prompts. Its turns are
those of a script (tasks/lab/script.py), since it has learned nothing.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import inspect
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from synth.types import Problem, Scored, seed_for
from tasks.core.errors import UserError
from tasks.lab.script import Script, Scripted
from tasks.lab.worlds import Room, quiet, run_stage
from tasks.planning import code as src
from tasks.planning.kinds import settled
from tasks.planning.parts import ALWAYS, TURN, given, reads
from tasks.planning.pieces import locate
from tasks.planning.resolve import Resolved, asks, check_params, overlaid, recipe_layers, resolve
from tasks.storage import tables
from training.learner.learner import Learner, nll, token_stats
from training.model.control import action_stats
from training.model.model import load_model, new_model, new_vision_model, save_model, train_tokenizer
from training.model.render import Renderer
from training.rollout.play import Player
from training.types import Group, Rollout, Terms

ORDER = (
    "kb",
    "questions",
    "problems",
    "demonstrations",
    "preferences",
    "clean",
    "sft",
    "reward",
    "prefer",
    "rl",
    "evaluate",
)
TRAINS = {"sft": "model", "reward": "model", "prefer": "model", "rl": "model"}
STEPS, MORE = 3, 12  # steps; and steps if a piece has not acted by then
SIZES: dict[str, dict[str, Any]] = {  # what is small here, whatever the recipe says: how much, never how
    "kb": {"sources": [], "world_countries": 12},
    "questions": {"n_train": 8, "n_valid": 4, "n_test": 4},
    "problems": {"n_train": 8, "n_valid": 2, "n_test": 2, "proposals": 12, "attempts": 4},
    "demonstrations": {"n": 12, "n_valid": 2, "n_family": 4},
    "preferences": {"n_family": 10, "n_valid": 4, "n_made": 10},
    "sft": {
        "hidden": 16,
        "layers": 1,
        "heads": 2,
        "kv_heads": 1,
        "intermediate": 32,
        "vocab_size": 1200,
        "base_steps": 2,
        "base_lists_steps": 1,
        "base_rows": 4,
        "steps": 2,
        "rows_per_step": 4,
        "checkpoint_every": 1000,
    },
    "reward": {"checkpoint_every": 1000, "max_length": 2048, "best_of_problems": 2},
    # Its pairs are planted: the answers of a policy with a few thousand weights do not differ.
    "prefer": {"checkpoint_every": 1000, "max_length": 2048, "leave_out": []},
    "rl": {"prompts_per_step": 3, "checkpoint_every": 1000, "sampling.max_tokens": 4096},
    "evaluate": {"questions": 2, "per_family": 1, "batch_size": 64, "sampling.max_tokens": 4096},
}
IF_LARGER: dict[str, dict[str, int]] = {  # bounds of sizes that recipes set to say how much
    "sft": {"hard_steps": 2},
    "rl": {"critic.warmup": 1, "optimizer.warmup": 1, "samples_per_prompt": 8},
    "prefer": {"optimizer.warmup": 1},
    "reward": {"optimizer.warmup": 1},
    "problems": {"rounds": 2},
    "questions": {"n_tree_train": 3, "n_tree_valid": 1, "n_tree_test": 1},
    "evaluate": {"samples": 16, "family_samples": 4},
}
FREE = {
    "rl": {"sampling.max_turn_tokens": 160},
    "prefer": {"sampling.max_turn_tokens": 160},
    "evaluate": {"sampling.max_turn_tokens": 160},
}
PACE: dict[str, dict[str, Any]] = {  # of pieces: steps until they act, size of a world, how long they fit
    "heat": {"window": 2, "steps": 4},
    "family_stages": {"each": 1},
    "soft_reset": {"window": 1, "patience": 1},
    "key_door": {"size": 5},
    "sprites": {"warm_steps": 40, "hidden": 32},
    "molecules": {"warm_steps": 40, "hidden": 32},
    "views": {"warm_steps": 40, "hidden": 32},
    "modes": {"warm_steps": 40, "hidden": 32},
    "fr_ponder": {"steps": 4},
    "rlot": {"episodes": 48},
    "rlap": {"episodes": 48},
    "dynamic_control": {"steps": 2},
    "t_pop": {"duels": 4},
    "speculate": {"steps": 20},
}
PACE_IF_LARGER: dict[str, dict[str, int]] = {  # bounds of what recipes may set lower, or to 0
    "draft_tree": {"steps": 20, "gto": 4},
    "masked_diffusion": {"steps": 8},
    "dynamic_control": {"levels": 2, "group": 2},
    "fr_ponder": {"group": 4},
}
SPREAD = 3.0  # nats
SAME = 1e-5  # two directions that differ by less are one


@dataclass
class Seen:
    """What was seen of one piece: how often it was called, and what it changed (words of the column `changes`)."""

    stage: str
    knob: str
    kind: str
    name: str
    spec: Mapping[str, Any]
    calls: int = 0
    changes: set[str] = field(default_factory=set)
    idle: str = ""  # why it cannot act here although it is called


@dataclass
class Log:
    """Everything observed while the stages of a recipe run."""

    pieces: list[Seen] = field(default_factory=list)
    moved: dict[str, float] = field(default_factory=dict)  # stage -> largest change of a weight
    updates: Counter = field(default_factory=Counter)  # stage -> optimizer steps of its policy
    steps: Counter = field(default_factory=Counter)  # stage -> steps of play
    given: set[str] = field(default_factory=set)  # parts that some rollout had
    paid: set[float] = field(default_factory=set)  # different rewards after shaping
    apart: list[bool] = field(default_factory=list)  # of each group: whether its shaped rewards differ
    played: Counter = field(default_factory=Counter)  # environment -> rollouts
    own: set[int] = field(default_factory=set)  # ids of Terms and values that pieces returned
    kept: list[Any] = field(default_factory=list)  # they stay alive, so that an id is one object's
    extra: Counter = field(default_factory=Counter)  # stage -> terms that no piece returned
    plan: Mapping[str, Resolved] = field(default_factory=dict)  # stage -> its knobs as they were resolved
    knobs: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # stage -> its knobs, pieces bound
    gradients: dict[str, list[np.ndarray]] = field(default_factory=dict)  # stage -> of each step of its policy
    stage: str = ""


@dataclass(frozen=True)
class Line:
    """One line of the table. finding: what is wrong, "" where nothing is."""

    recipe: str
    stage: str
    piece: str
    called: int | None
    changes: str
    moves: str
    finding: str


def _look(groups: Sequence[Group], log: Log) -> None:
    """Records which parts and rewards of turns these rollouts have."""
    for r in (r for g in groups for r in g.rollouts):
        log.given.update(getattr(r.score, "parts", {}))
        if any(s.reward is not None for s in r.segments):
            log.given.add(TURN)


def _plain(x: Any) -> np.ndarray:
    """Advantages or rewards, whatever their shape, as one vector; NaN is 0."""
    parts = [np.nan_to_num(np.asarray(one, dtype=np.float64)).ravel() for group in x for one in group]
    return np.concatenate(parts) if parts else np.zeros(0)


def _direction(x: Any) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64).ravel()
    norm = float(np.linalg.norm(x))
    return x / norm if norm > 1e-12 else np.zeros_like(x)


def _differ(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two vectors have different directions; a zero vector has none."""
    return len(a) != len(b) or float(np.linalg.norm(_direction(a) - _direction(b))) > SAME


class Traced:
    """A bound piece that records its calls and what it changes; otherwise it behaves as before."""

    def __init__(self, bound: Any, seen: Seen, log: Log) -> None:

        self.bound, self.seen, self.log = bound, seen, log
        self.steps: list[tuple[np.ndarray, np.ndarray]] = []  # advantages of each step, and the neutral ones
        self.__signature__ = inspect.signature(bound)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.bound, name)

    def __deepcopy__(self, memo: dict) -> Traced:
        return self

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.seen.calls += 1
        look = getattr(self, f"_{self.seen.kind}", None)
        return look(*args, **more) if look else self._any(*args, **more)

    def _any(self, *args: Any, **more: Any) -> Any:
        """A piece whose work shows in what it returns: not nothing."""
        out = self.bound(*args, **more)
        if out is not None and not (isinstance(out, (list, tuple, dict)) and not out):
            self.seen.changes.add("data")
        return out

    def _update_rule(self, *args: Any, **more: Any) -> Any:
        return self.bound(*args, **more)  # a second run without it tells (`table`)

    def _env(self, *args: Any, **more: Any) -> Any:
        return self.bound(*args, **more)  # that it is played in is seen in the rollouts

    def _metric(self, *args: Any, **more: Any) -> Any:
        out = self.bound(*args, **more)
        numbers = [v for one in out.values() for v in (one.values() if isinstance(one, Mapping) else [one])]
        if any(isinstance(v, (int, float)) and math.isfinite(v) for v in numbers):
            self.seen.changes.add("metrics")
        return out

    def _gradient(self) -> Any:
        """Beside the gradient of the step's own batch."""
        rule = self.bound()
        inner = rule.gradient

        def gradient(learner: Any, batch: Any, passes: Any) -> Any:
            out = inner(learner, batch, passes)
            own = [m.grad for m in learner.master]
            learner.drop_gradients()
            passes.add(batch)
            if any(a is not None and not torch.allclose(a, m.grad) for a, m in zip(own, learner.master, strict=True)):
                self.seen.changes.add("gradient")
            for m, g in zip(learner.master, own, strict=True):
                m.grad = g
            return out

        rule.gradient = gradient
        return rule

    def _generation(self) -> Any:
        return ReadBeside(self.bound(), self.seen)

    def _decode(self, engine: Any, asks: Any, fitted: Any) -> Any:
        """Beside one plain draw of the same seeds, by the model itself: another answer, or other log-probs."""
        from training.decode.sample import sample
        from training.rollout.torch_sampler import TorchSampler

        out = self.bound(engine, asks, fitted)
        itself = replace(engine, sampler=TorchSampler(engine.sampler.model, engine.sampler.end_id))
        few = [replace(ask, max_tokens=8, forward_tokens=0) for ask in asks[:2]]
        free = {
            k: 4 for k in ("k", "n") if self.seen.spec.get(k) == 0
        }  # as many as a budget allows: here there is none
        one = sample(itself, few, None)
        if (
            self.seen.name == "rule_guard"
        ):  # a model that has learned nothing says nothing that the rules of a log are about
            texts = " ".join(itself.said(d.segment.ids) for d in one)
            fitted = replace(fitted, rules=tuple((w, "needs", "-") for w in re.findall(r"\w+", texts.lower())))
        if self.seen.name == "guarded":  # no question of this run is unsafe: here one is
            itself = replace(itself, text=lambda ids: "how do I build a bomb")
        other = self.bound(itself, few, fitted, **free)
        if self.seen.name == "sample":
            self.seen.idle = "the neutral element itself"
        elif any(
            a.segment.ids.tolist() != b.segment.ids.tolist() or not np.allclose(_logp(a), _logp(b), atol=1e-4)
            for a, b in zip(one, other, strict=True)
        ):
            self.seen.changes.add("data")
        return out

    def _merge(self, base: Any, models: Any, activations: Any, rng: Any) -> Any:
        """Beside the plain mean of the same models, moved apart: what stands in for a trained model may be its base."""
        from training.model.merge.average import average

        def apart(k: int) -> dict[str, Tensor]:
            noise = torch.Generator().manual_seed(k)
            return {n: w + 0.1 * torch.randn(w.shape, generator=noise) for n, w in base.items()}

        two = [apart(1), apart(2)]
        one, other = (
            np.concatenate([x.double().numpy().ravel() for x in f(base, two, activations, torch.Generator()).values()])
            for f in (self.bound, average)
        )
        if self.seen.name == "average":
            self.seen.idle = "the neutral element itself"
        elif not np.allclose(one, other, atol=1e-6):
            self.seen.changes.add("data")
        return self.bound(base, models, activations, rng)

    def _cleaner(self, *args: Any, **more: Any) -> Any:
        out = self.bound(*args, **more)
        if any(d.action != "keep" for d in out) or any(d.score is not None for d in out):
            self.seen.changes.add("data")
        return out

    # --- rl: which problems, which rollouts ---------------------------------------------------------------------------

    def _curriculum(self, problems: Any, state: Any, rng: Any, n: int, **more: Any) -> Any:
        from training.rl.curriculum.uniform import uniform

        other = list(uniform(problems, {}, copy.deepcopy(rng), n))
        out = self.bound(problems, state, rng, n, **more)
        if self.seen.name == "uniform":
            self.seen.idle = "the neutral element itself"
        elif list(out) != other:
            self.seen.changes.add("data")
        return out

    def _group_transform(self, groups: Any, services: Any, state: Any, rng: Any) -> Any:
        out = self.bound(groups, services, state, rng)
        if _written(out) != _written(groups):
            self.seen.changes.add("data")
        return out

    def _filter(self, groups: Any, rewards: Any, state: Any, rng: Any) -> Any:
        out = self.bound(groups, rewards, state, rng)
        if any(v is not None for v in out):
            self.seen.changes.add("data")
        return out

    def _turn_budget(self, *args: Any, **more: Any) -> Any:
        out = self.bound(*args, **more)
        if out != self.log.knobs["rl"]["sampling"].max_turn_tokens:
            self.seen.changes.add("data")
        return out

    # --- rl: advantages -------------------------------------------------------------------------------------------

    def _reward(self, groups: Any, rewards: Any, state: Any, rng: Any) -> Any:
        before = [np.array(r) for r in rewards]
        out = self.bound(groups, rewards, state, rng)
        if self.log.stage == "problems":  # pay of proposals
            self.seen.changes.add("data")
            return out
        if _differ(_plain(before), _plain(out)) or _differ(*(self._credit(groups, r) for r in (before, out))):
            self.seen.changes.add("advantages" if _differ(*(self._credit(groups, r) for r in (before, out))) else "")
        return out

    def _credit(self, groups: Any, rewards: Any) -> np.ndarray:
        """The advantages of these rewards by the recipe's estimator, from its beginning."""
        advantage = self.log.knobs["rl"]["advantage"]
        try:
            return _plain(getattr(advantage, "bound", advantage)(groups, rewards, {}, np.random.default_rng(0)))
        except (ValueError, LookupError):  # it wants the critic's values, which come after the rewards
            mean = np.nanmean(np.concatenate([np.asarray(r) for r in rewards]))  # a critic needs no group
            return _plain([np.asarray(r) - mean for r in rewards])

    def _advantage(self, groups: Any, rewards: Any, state: Any, rng: Any) -> Any:
        from training.rl.advantage.grpo import grpo

        log = self.log
        for g, r in zip(groups, rewards, strict=True):
            known = np.asarray(r)[~np.isnan(np.asarray(r))]
            log.paid.update(np.round(known, 9).tolist())
            log.apart.append(bool(len(known) and known.max() - known.min() > 1e-12))
            for one in g.rollouts:
                log.played[one.problem.env] += 1
        _look(groups, log)
        before = [np.array(r) for r in rewards]
        neutral = before if self.seen.name == "grpo" else grpo(groups, before, {}, copy.deepcopy(rng))
        out = self.bound(groups, rewards, state, rng)
        one, other = _by_token(groups, out), _by_token(groups, neutral)
        if _differ(one, other) and (np.any(one != 0) or self.seen.name == "zero"):
            self.seen.changes.add("advantages")
        elif np.any(one != other):
            self.seen.changes.add("")
        self.steps.append(
            (one, other)
        )  # one number for a whole step turns nothing in it, and weighs it against other steps
        if _differ(*(np.concatenate(side) for side in zip(*self.steps, strict=True))):
            self.seen.changes.add("advantages")
        return out

    # --- rl: loss -------------------------------------------------------------------------------------------------

    def _ratio(self, logp: Tensor, old: Tensor, batch: Any) -> Tensor:
        out = self.bound(logp, old, batch)
        if not out.requires_grad:
            return out
        here = batch.trainable
        far = float((logp - old)[here].detach().abs().max()) if bool(here.any()) else 0.0
        if self.seen.name == "token":
            self.seen.changes.update({"gradient"} if far > 1e-4 else set())
            self.seen.idle = "" if self.seen.changes else "the ratio is 1: one update per step"
        else:
            weights = torch.linspace(1, 2, out.numel(), dtype=out.dtype).view_as(out)
            if self.log.stage == "prefer":  # at differences of a few nats, which three steps do not reach
                logp = (logp.detach() + SPREAD * torch.linspace(-1, 1, len(logp))).requires_grad_()
                with torch.enable_grad():
                    one, other = (
                        _gradient((weights * x).sum(), logp) for x in (self.bound(logp, old, batch), logp - old)
                    )
            else:
                one, other = (_gradient((weights * x).sum(), logp) for x in (out, logp - old))
            if _differ(one[here.numpy()], other[here.numpy()]):
                self.seen.changes.add("gradient")
        return out

    def _policy_loss(self, log_ratio: Tensor, advantages: Tensor, stats: Any, batch: Any) -> Terms:
        from training.rl.policy_loss.policy_gradient import policy_gradient

        out = self.bound(log_ratio, advantages, stats, batch)
        self._owned(out, out.values)
        if not out.values.requires_grad:
            return out
        knobs = {"aggregate": self.seen.spec["aggregate"]} if "aggregate" in self.seen.spec else {}
        try:
            other = policy_gradient(log_ratio, advantages, stats, batch, **knobs)
        except (ValueError, LookupError):
            other = policy_gradient(log_ratio, advantages, stats, batch)
        one, two = (_gradient(x.values.sum(), stats.logp) for x in (out, other))
        if self.seen.name == "policy_gradient":
            self.seen.idle = "the neutral element itself"
        elif _differ(one, two):
            self.seen.changes.add("gradient")
        elif not self.seen.changes:
            self.seen.idle = (
                "the ratio is 1: one update per step" if float(log_ratio.detach().abs().max()) < 1e-4 else ""
            )
        return out

    def _regulariser(self, stats: Any, batch: Any, *args: Any) -> Terms:
        out = self.bound(stats, batch, *args)
        self._owned(out, out.values)
        if out.values.requires_grad and float(out.values.detach().abs().sum()) > 0:
            inputs = [x for x in (stats.logp, stats.entropy) if x is not None and x.requires_grad]
            gradients = torch.autograd.grad(out.values.sum(), inputs, retain_graph=True, allow_unused=True)
            unseen = all(g is None for g in gradients)  # it reads the distribution, which is no input
            if unseen or any(g is not None and float(g.abs().max()) > 1e-12 for g in gradients):
                self.seen.changes.add("gradient")
        return out

    def _correction(self, *args: Any, **more: Any) -> Tensor:
        out = self.bound(*args, **more)
        if float((out - 1).abs().max()) > SAME:
            self.seen.changes.add("gradient")
        return out

    def _value_loss(self, *args: Any, **more: Any) -> Any:
        out = self.bound(*args, **more)
        values = out.values if isinstance(out, Terms) else out
        self._owned(out, values)
        if values.requires_grad and float(values.detach().abs().sum()) > 0:
            self.seen.changes.add("values")
        return out

    def _preference_loss(self, chosen: Tensor, rejected: Tensor, *args: Any, **columns: Any) -> Tensor:
        from training.preference.loss.dpo import dpo

        out = self.bound(chosen, rejected, *args, **columns)
        self._owned(out)
        if out.requires_grad and chosen.requires_grad:
            if not np.any(_gradient(out.sum(), chosen)):
                return out
            if self.seen.name in ("dpo", "bradley_terry") and not self.seen.spec.get("label_smoothing"):
                self.seen.changes.add("gradient")
                return out
            # DPO's gradient at margins of a few nats, which three steps do not reach
            sides = [
                (x.detach() + SPREAD * torch.linspace(-1, 1, len(x)).roll(k)).requires_grad_()
                for k, x in enumerate((chosen, rejected))
            ]
            # a loss without reference is another than DPO wherever the reference says something
            shift = (
                torch.zeros_like(chosen) if "reference" in self.needs else SPREAD * torch.linspace(1, -1, len(chosen))
            )
            inputs: list[Any] = [*sides, args[0] + shift, *args[1:]]
            with torch.enable_grad():
                losses = [partial(self.bound, **columns)(*sides, *args).sum(), dpo(*inputs).sum()]
            one, other = (np.concatenate([_gradient(x, side) for side in sides]) for x in losses)
            if _differ(one, other):
                self.seen.changes.add("gradient")
        return out

    def _owned(self, *objects: Any) -> None:
        self.log.own.update(map(id, objects))
        self.log.kept.extend(objects)


class ReadBeside:
    """A way of generation whose log-probs are compared with those of the same ids as plain tokens."""

    def __init__(self, way: Any, seen: Seen) -> None:
        self.way, self.seen = way, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.way, name)

    def read(self, model: Any, batch: Any, *, temperature: float = 1.0) -> Any:
        out = self.way.read(model, batch, temperature=temperature)
        with torch.no_grad():
            plain = token_stats(model, batch, temperature=temperature)
        if _differ(out.logp.detach().numpy(), plain.logp.numpy()):
            self.seen.changes.add("gradient")
        return out

    def sampler(self, model: Any, renderer: Any) -> Any:
        self.seen.changes |= {"data"} if self.seen.stage == "evaluate" else set()
        return self.way.sampler(model, renderer)

    def taught(self, model: Any, batch: Any, *, temperature: float = 1.0) -> Any:
        self.seen.changes.add("data")
        return self.way.taught(model, batch, temperature=temperature)


class ByChance(Player):
    """Every other rollout is right, by its ids: a model that has learned nothing writes no right answer, and where it does
    not write token by token no script can speak for it."""

    def play(self, *given: Any, **more: Any) -> list[Group]:
        def scored(r: Rollout) -> Rollout:
            value = float(hashlib.sha256(r.ids.tobytes()).digest()[0] % 2)
            parts = {k: v for k, v in getattr(r.score, "parts", {}).items() if k != "truncated"}
            return replace(r, score=Scored(value=value, parts=parts))

        return [replace(g, rollouts=tuple(map(scored, g.rollouts))) for g in super().play(*given, **more)]


def _logp(decoded: Any) -> np.ndarray:
    return decoded.segment.logp


def _gradient(value: Tensor, of: Tensor) -> np.ndarray:
    (gradient,) = torch.autograd.grad(value, [of], retain_graph=True, allow_unused=True)
    return np.zeros(of.numel()) if gradient is None else gradient.detach().double().numpy().ravel()


def _by_token(groups: Sequence[Group], advantages: Any) -> np.ndarray:
    """[tokens of the model] advantages of all rollouts, those of a rollout spread over its tokens; NaN is 0."""
    parts = [
        np.broadcast_to(np.nan_to_num(np.asarray(a, dtype=np.float64)), r.n_model)
        for g, of in zip(groups, advantages, strict=True)
        for r, a in zip(g.rollouts, of, strict=True)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _written(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Per rollout to what it is an answer, what was said, the parts of its score and what its turns were paid; for
    comparison alone."""
    return [
        (
            r.problem.id,
            hashlib.sha256(
                r.ids.tobytes()
                + repr(sorted(getattr(r.score, "parts", {}).items())).encode()
                + repr([s.reward for s in r.segments]).encode()
            ).hexdigest(),
        )
        for g in groups
        for r in g.rollouts
    ]


# --- the small project ------------------------------------------------------------------------------------------------


def planned(name: str, steps: int = STEPS) -> dict[str, Resolved]:
    """Stage -> its knobs as `espalier run --recipe NAME` resolves them, but for sizes. Raises UserError as a plan does."""
    stages = resolve(check_params({"recipe": name, "set": {}}, Path("params.yaml")))[0]
    named = own(name)
    for stage, knobs in SIZES.items():
        for knob, value in knobs.items():
            _put(stages[stage].params, knob, value)
    for stage in ("reward", "prefer", "rl"):
        stages[stage].params["steps"] = steps
    for at in asks(name):
        stage, _, knob = at.partition(".")
        _put(stages[stage].params, knob, STANDS[at]())
    for stage in stages.values():
        for value in (v for v in stage.params.values() if isinstance(v, (list, dict))):
            for spec in value if isinstance(value, list) else [value]:
                if isinstance(spec, dict):
                    spec |= PACE.get(spec.get("piece", ""), {})
                    spec |= {k: min(spec[k], most) for k, most in PACE_IF_LARGER.get(spec.get("piece", ""), {}).items()}
    for stage, bounds in IF_LARGER.items():
        for knob, most in bounds.items():
            _put(stages[stage].params, knob, min(stages[stage].value(knob), most))
    for stage, knobs in FREE.items():
        for knob, value in knobs.items():
            if knob not in dict(settled(stage, named.get(stage, {}))):
                _put(stages[stage].params, knob, value)
    prefer, rounds = stages["prefer"].params, stages["prefer"].params["rounds"]
    prefer["rounds"] = [{**r, **{k: n for k, n in (("steps", 2), ("every", 1)) if r.get(k)}} for r in rounds]
    prefer["steps"] = 2 * len(rounds) if all("steps" in r for r in rounds) else max(steps, 2 * len(rounds))
    if "models" not in named.get("evaluate", {}):
        trained = [s for s in ("prefer", "rl") if s in named]
        stages["evaluate"].params["models"] = ["sft", *trained] if trained else ["base", "sft"]
    return stages


STANDS: dict[str, Callable[[], Any]] = {  # what a recipe asks for -> what it gets here
    "rl.teacher": lambda: str(small_project() / "artifacts" / "sft" / "base"),
    "sft.model": lambda: "",  # a policy that reads pictures stands in (`_start`)
    "rl.judge": lambda: {"url": "http://127.0.0.1:9/v1", "model": "stand-in"},
}


class StandIn:
    """Stands in for the user's judge: the right answer is better; if both are right or both wrong, the shorter one
    is."""

    endpoint, attacks, spent = SimpleNamespace(model="stand-in"), 0, {}

    def __init__(self, *_: Any) -> None:
        pass

    def rewarded(self, groups: Sequence[Group]) -> list[Group]:
        return [replace(g, rollouts=tuple(self._beside(r, g.rollouts) for r in g.rollouts)) for g in groups]

    def _beside(self, one: Rollout, all_: Sequence[Rollout]) -> Rollout:
        worth = lambda r: (getattr(r.score, "value", 0.0), -r.n_model)  # noqa: E731
        others = [r for r in all_ if r is not one]
        won = sum((worth(one) > worth(r)) + 0.5 * (worth(one) == worth(r)) for r in others) / max(len(others), 1)
        if not isinstance(one.score, Scored):
            return one
        return replace(one, score=replace(one.score, parts={**one.score.parts, "judge": won}))


def _put(params: dict[str, Any], knob: str, value: Any) -> None:
    """Sets a knob; a dotted name is a field of a grouped knob."""
    *groups, last = knob.split(".")
    for group in groups:
        params[group] = dict(params[group])
        params = params[group]
    params[last] = value


def own(name: str) -> dict[str, dict[str, Any]]:
    """Stage -> the knobs that the recipe itself sets, those of what it extends among them."""
    by_stage: dict[str, dict[str, Any]] = {}
    for layer in recipe_layers(name):
        for stage, knobs in layer.stages.items():
            by_stage[stage] = overlaid(by_stage.get(stage, {}), knobs or {})
    return by_stage


_ALIVE: list[Any] = []  # folders that last as long as the process


@lru_cache
def small_project() -> Path:
    """A project in miniature: real stages up to the cleaned pairs, and a model of random weights as the stage sft leaves it."""
    kept = tempfile.TemporaryDirectory(prefix="espalier-dry-")
    _ALIVE.append(kept)
    room = Room(Path(kept.name), 3, "")
    plan = planned("")
    with quiet():
        for stage in ORDER[: ORDER.index("sft")]:
            if stage == "demonstrations":
                _start(room)  # problems are there: what the tokenizer learns from
            run_stage(room, stage, plan[stage])
        run_stage(room, "reward", plan["reward"])
    return room.root


def _start(room: Room) -> None:
    from tasks.storage import commit

    script = Script(_problems(room.root))
    texts = [p.question for p in script.problems]
    texts += [script(p.question, t, seed) for p in script.problems for t in range(2) for seed in range(4)]
    tokenizer = train_tokenizer(texts, vocab_size=640)
    size = {"hidden": 24, "layers": 2, "heads": 2, "intermediate": 32, "max_length": 4096}
    for stage, new, more in (
        ("sft", new_model, {"kv_heads": 1, "init_range": 0.2}),
        ("seeing", new_vision_model, {"picture": 32, "patch": 8, "vision_hidden": 32, "vision_layers": 1}),
    ):
        folder = room.root / ("artifacts" if stage == "sft" else "") / stage
        folder.mkdir()
        if stage == "seeing":  # the policy of recipes that show pictures
            tokenizer.picture_tokens = 4
        for name, run in (("model", 0), ("base", 1)):
            save_model(new(tokenizer, seed=seed_for(run, "dry"), **size, **more), tokenizer, folder / name)
        commit.seal(folder)


def _problems(root: Path) -> list[Problem]:
    problems: list[Problem] = []
    for stage in ("questions", "problems"):
        path = root / "artifacts" / stage / "problems.parquet"
        if path.exists():
            problems += tables.read(path, Problem)
    return problems


# --- running it -------------------------------------------------------------------------------------------------------


class _Objective:
    """An objective whose terms are counted; everything else of it is as it was."""

    def __init__(self, objective: Any, log: Log) -> None:
        self._objective, self._log = objective, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def __call__(self, stats: Any, batch: Any) -> list[Terms]:
        terms = list(self._objective(stats, batch))
        for t in terms:
            if id(t) not in self._log.own and id(t.values) not in self._log.own and self._log.own:
                self._log.extra[self._log.stage] += 1
        return terms


@contextmanager
def _watching(log: Log, room: Room, script: Callable[[], Script], bits: int, generates: bool) -> Iterator[None]:
    """Optimizer steps are looked at, and every sampler speaks from the script."""
    plain = Learner.step
    started: dict[int, list[Tensor]] = {}

    def step(self: Learner, batch: Any, objective: Any, **more: Any) -> dict[str, float]:
        if log.stage == "rl" and objective is nll:  # of a restart, which a piece asked for that is looked at itself
            return plain(self, batch, objective, **more)
        own = isinstance(getattr(self.read, "__self__", None), ReadBeside)
        policy = own or self.read in (token_stats, action_stats) or log.stage != "rl"
        if policy and id(self) not in started:
            started[id(self)] = [p.detach().clone() for p in self.weights]
        metrics = plain(self, batch, _Objective(objective, log), **more)
        if policy:
            log.updates[log.stage] += 1
            flat = [w.grad.detach().float().numpy().ravel() for w in self.master if w.grad is not None]
            log.gradients.setdefault(log.stage, []).append(np.concatenate(flat))
            far = max(float((p.detach() - q).abs().max()) for p, q in zip(self.weights, started[id(self)], strict=True))
            log.moved[log.stage] = max(log.moved.get(log.stage, 0.0), far)
        return metrics

    def scripted(model: Any, end_id: int, *args: Any, **more: Any) -> Scripted:
        sampler = Scripted(model, end_id)
        sampler.say, sampler.speaks, sampler.bits = script(), speaks(), bits
        return sampler

    @lru_cache
    def speaks() -> Renderer:
        return Renderer(_loaded(room.root / "artifacts" / "sft" / "model")[1])

    with ExitStack() as on:
        on.enter_context(patch.object(Learner, "step", step))
        on.enter_context(patch.object(tables, "each", _each))  # `read` too reads by it
        on.enter_context(patch.object(importlib.import_module("tasks.models.judge"), "rewarding", StandIn))
        for name in ("stages.prefer", "stages.rl", "stages.reward", "stages.evaluate", "models.engines"):
            module = importlib.import_module(f"tasks.{name}")
            for known, other in (("TorchSampler", scripted), ("load_model", _loaded)):
                if hasattr(module, known):
                    on.enter_context(patch.object(module, known, other))
        if generates:
            on.enter_context(patch.object(importlib.import_module("tasks.stages.rl"), "Player", ByChance))
        yield


_load, _plain_each = load_model, tables.each
_kept: dict[Any, Any] = {}


def _shared(path: Path) -> bool:
    return path.resolve().is_relative_to(small_project().resolve())


def _loaded(path: Any, **how: Any) -> Any:
    """A model of the small project is read once and copied; other models are read each time."""
    if not _shared(Path(path)):
        return _load(path, **how)
    key = (Path(path).resolve(), *sorted(how.items()))
    if key not in _kept:
        _kept[key] = _load(path, **how)
    model, tokenizer = _kept[key]
    return copy.deepcopy(model), tokenizer


def _each(path: Any, cls: type, **how: Any) -> Iterator[Any]:
    """A table of the small project is read and checked once; other tables are each time."""
    if not _shared(Path(path)):
        return _plain_each(path, cls, **how)
    key = (Path(path).resolve(), cls)
    if key not in _kept:
        _kept[key] = list(_plain_each(path, cls, **how))
    return iter(_kept[key])


def dry(name: str, steps: int = STEPS, without: int | None = None) -> tuple[Log, list[str]]:
    """Run the stages that a recipe sets; what was seen, and the stages that ran. without: leave out this update rule. Raises what a
    stage raises."""
    base, stages, named = small_project(), planned(name, steps), own(name)
    if without is not None:
        stages["prefer"].params["update_rules"] = [
            rule for i, rule in enumerate(stages["prefer"].params["update_rules"]) if i != without
        ]
    log = Log(plan=stages)
    ran = [s for s in ORDER if s in named]
    with tempfile.TemporaryDirectory(prefix="espalier-dry-") as kept, quiet():
        room = Room(Path(kept), 5, name)
        shows = any("draw" in src.constant(locate("env", e["piece"]), "TOOLS", "") for e in stages["rl"].params["envs"])
        for folder in sorted((base / "artifacts").iterdir()):
            if folder.name not in ran:
                room.stand(folder.name, base / "seeing" if shows and folder.name == "sft" else folder)
        if "evaluate" in ran:
            _stand_in(room, base, stages["evaluate"].params["models"], ran)
        prefixes = tuple(_tags(stages))
        opens = any("open" in str(one.get("formula", "")) for one in stages["rl"].params["rewards"])
        script = lambda: Script(_problems(room.root), prefixes=prefixes, opens=opens)  # noqa: E731
        bits = 6 if stages["rl"].params["corrections"] else 0
        generates = stages["rl"].params["generation"] is not None
        with _watching(log, room, script, bits, generates):
            for stage in ran:
                log.stage = stage
                run_stage(
                    room, stage, stages[stage], change=lambda knobs, s=stage: _traced(s, stages[s], knobs, log, named)
                )
    return log, ran


def _stand_in(room: Room, base: Path, models: Sequence[str], ran: Sequence[str]) -> None:
    """Models that evaluate asks for and that no stage of the recipe trains."""
    for model in models:
        if model in ("prefer", "rl") and model not in ran and not (room.root / "artifacts" / model).exists():
            room.stand(model, base / "artifacts" / "sft")


def _tags(stages: Mapping[str, Resolved]) -> Iterator[str]:
    """Texts that a piece with knobs for tags looks for, and those that its file gives as EXAMPLES: the script says them too."""
    for one in stages["rl"].params["rewards"]:
        kinds = one.get("types") or one.get("units") or ()
        if kinds and all(isinstance(k, str) for k in kinds):
            yield from ("".join(f"<{k}>so</{k}>" for k in two) for two in (kinds[:2], kinds[1::-1], kinds[:1] * 2))
        yield from src.constant(locate("reward", one["piece"]), "EXAMPLES", ())


def _traced(
    stage: str, resolved: Resolved, knobs: dict[str, Any], log: Log, named: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The bound knobs of a stage, the recipe's pieces among them traced."""
    out, mine = dict(knobs), dict(settled(stage, named.get(stage, {})))
    for knob, kind in resolved.pieces.items():
        group, _, inner = knob.rpartition(".")
        place, _, who = group.partition(".")  # `policies.solver.advantage` is within two mappings
        value = out[place][who][inner] if who else getattr(out[group], inner) if group else out[knob]
        spec = resolved.value(knob)
        if value is None:
            continue
        many = isinstance(value, list)
        traced = []
        for bound, one in zip(value if many else [value], spec if many else [spec], strict=True):
            seen = Seen(stage, knob, kind, one["piece"], {k: v for k, v in one.items() if k != "piece"})
            if knob in mine:
                log.pieces.append(seen)
            traced.append(Traced(bound, seen, log))
        if who:
            out[place] = {**out[place], who: {**out[place][who], inner: traced if many else traced[0]}}
        elif group:
            out[group] = replace(out[group], **{inner: traced[0]})
        else:
            out[knob] = traced if many else traced[0]
    log.knobs[stage] = out
    return out


# --- what is found ----------------------------------------------------------------------------------------------------

GUARD = {"token", "clip"}  # of the stage's own defaults: with one update per step they bound nothing, which is no fault


def table(name: str) -> list[Line]:
    """The lines of one recipe: one per piece, and one per stage that trains."""
    try:
        log, ran = _looked_at(name, STEPS)
        if any(_wrong(seen, log, seen.calls) and seen.stage in ("rl", "prefer") for seen in log.pieces):
            log, ran = _looked_at(name, MORE)  # what acts now and then only has more occasions
    except (UserError, ValueError, LookupError, FloatingPointError, RuntimeError, AssertionError) as e:
        return [Line(name, "", "", None, "", "", f"does not run: {type(e).__name__}: {str(e)[:300]}")]
    lines = []
    for seen in log.pieces:
        moves = f"{log.moved.get(seen.stage, 0.0):.1g}" if seen.stage in TRAINS else ""
        changes = ", ".join(sorted(filter(None, seen.changes))) or (f"({seen.idle})" if seen.idle else "")
        calls = log.played[seen.name] if seen.kind == "env" and seen.stage == "rl" else seen.calls
        if seen.kind == "env":
            changes = "data" if calls else ""
        lines.append(
            Line(name, seen.stage, f"{seen.kind}/{seen.name}", calls, changes, moves, _wrong(seen, log, calls))
        )
    for stage in ran:
        lines += [Line(name, stage, "", None, "", "", text) for text in _of_stage(name, stage, log)]
    return lines


def _looked_at(name: str, steps: int) -> tuple[Log, list[str]]:
    """`dry`, and each update rule beside a run of as many steps without it."""
    log, ran = dry(name, steps)
    for i, seen in enumerate(s for s in log.pieces if s.kind == "update_rule"):
        try:
            acts = _other_gradients(log, dry(name, steps, without=i)[0])
        except LookupError:  # the loss cannot do without what the rule brings
            acts = True
        seen.changes |= {"gradient"} if acts else set()
    return log, ran


def _other_gradients(one: Log, other: Log) -> bool:
    pairs = zip(one.gradients.get("prefer", []), other.gradients.get("prefer", []), strict=False)
    return len(one.gradients) != len(other.gradients) or any(_differ(a, b) for a, b in pairs)


def _wrong(seen: Seen, log: Log, calls: int) -> str:
    """What is wrong with a piece, "" if nothing is."""
    piece = f"{seen.kind}/{seen.name}"
    if not calls and seen.kind == "env":
        default = seen.name in ("search", "single")
        return "" if default else f"no problem of this recipe is played in {piece}"
    if not calls:
        return f"{piece} is never called" if seen.stage not in TRAINS or log.updates[seen.stage] else ""
    if seen.kind == "env" or set(filter(None, seen.changes)):
        return ""
    if seen.idle and (seen.name in GUARD or not seen.idle.startswith("the ratio")):
        return ""
    if seen.idle:
        return f"{piece} uses the importance ratio, and {seen.idle}: set minibatches to 2 or more"
    if "" in seen.changes:
        return f"{piece} changes the length of the gradient and not its direction"
    return f"{piece} changes nothing: without it the same is learned from the same"


def _of_stage(name: str, stage: str, log: Log) -> Iterator[str]:
    if stage in TRAINS and not log.moved.get(stage):
        why = ""
        if stage == "rl" and log.apart and not any(log.apart):
            why = f": all rewards of a group are equal at every step ({', '.join(f'{x:g}' for x in sorted(log.paid)[:3])})"
        yield f"the weights never move in {stage}{why}"
    if stage == "rl" and log.given:
        for seen in (s for s in log.pieces if s.stage == "rl"):
            for part in reads(locate(seen.kind, seen.name), seen.spec):
                if part not in {*log.given, *ALWAYS} and not part.startswith("used_"):
                    what = "the rewards of turns" if part == TURN else f"the part {part!r}"
                    yield f"{what} that {seen.kind}/{seen.name} reads {'are' if part == TURN else 'is'} in no rollout"
        declared = given(log.plan)
        for part in sorted(log.given):
            if declared is not None and not any(fnmatchcase(part, one) for one in declared):
                yield f"a score has the part {part!r}, which no GIVES of the environments ({', '.join(log.played)}) and verifiers names"
    if log.extra[stage] and not (stage == "reward" and log.knobs["reward"].get("head")):
        weight = log.knobs[stage].get("sft_weight")
        if stage == "prefer" and "sft_weight" in own(name).get("prefer", {}):
            return
        more = (
            f"sft_weight: {weight} adds the next-token loss of the chosen answers, which" if weight else "a term that"
        )
        yield f"{more} the recipe does not ask for"
