"""The stage `prefer`: preference optimisation of the SFT model on the cleaned pairs, in one round or several."""

# pyright: reportInvalidTypeForm=false
# (a knob that is a piece is annotated with its kind, `Piece("advantage")`, which the plan reads)

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from torch import nn

from synth.preferences.ledger import Ledger, Spilled, View
from synth.types import ListDigest, PreferencePair, Problem, seed_for
from tasks.core.errors import UserError
from tasks.knowledge import knowledge
from tasks.models import tools
from tasks.models.openings import opening
from tasks.rows.read import chance, own_rows, shares, too_long
from tasks.rows.columns import BY_THE_OBJECTIVE, columns, margins
from tasks.planning.pieces import Piece, Pieces, Place
from tasks.planning.settings import Optimizer, Sampling
from tasks.runtime.stage import Stage
from tasks.runtime.train_loop import Curve, drive, make_repeatable, optim, shuffled, together
from tasks.storage import tables
from tasks.storage.problems import ByName, Problems
from training.learner.follow import followed
from training.learner.learner import Learner, score
from training.learner.loop import Round, Source
from training.learner.pack import Row, pack
from training.learner.rows import SCORED, two_rows
from training.learner.spilled import SpilledRows, SpilledUnits
from training.model.lora import adapt, first_on
from training.model.model import load_model, n_parameters, save_model
from training.model.quantised import plain, quantise
from training.model.render import Renderer
from training.preference.objective import PairObjective, columns_of
from training.preference.on_policy_pairs import SampledPairs
from training.preference.rounds import Rounds, RoundSpec, read
from training.preference.units import Two, each, each_unit
from training.preference.update_rule import OfflineRound, UpdateRule
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

PROVIDES = {"reference", "policy", "mismatched"}
# Former knobs -> what to write now, which the plan says when it refuses them.
RENAMED = {
    "soup_of": "update_rules: [{piece: averaged_reference, of: [...]}]",
    "soup_weight": "update_rules: [{piece: averaged_reference, weight: ...}]",
    "earlier": "update_rules: [{piece: earlier_policies, keep: ...}]",
    "attention_layers": "update_rules: [{piece: attention_weights, layers: [...]}]",
    "length_penalty": "update_rules: [{piece: length_penalty, per_token: ...}]",
    "angles": "update_rules: [{piece: directions, angles: [...]}]",
    "meta_lr": "update_rules: [{piece: meta_weight, lr: ...}]",
}


def prefer(
    stage: Stage,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    learners: Place() = 1,
    shards: Place() = 1,
    steps: int = 80,
    pairs_per_step: int = 16,
    tokens_per_microbatch: int = 16384,
    gradient_checkpointing: bool = False,
    router_loss: float = 0.0,
    lora: dict = {},  # noqa: B006
    max_length: int = 512,
    optimizer: Optimizer = Optimizer(lr=2e-4, matrix_lr=0.005),
    sft_weight: float = 0.0,
    checkpoint_every: int = 40,
    loss: Piece("preference_loss") = {"piece": "dpo", "beta": 0.1},
    ratio: Piece("ratio") = None,
    rounds: list = [{}],
    leave_out: list = ["wrong_turns", "injected_errors"],  # noqa: B006
    update_rules: Pieces("update_rule") = [],
    include_families: bool = True,
    samples_per_prompt: int = 8,
    sampling: Sampling = Sampling(),
    envs: Pieces("env") = [{"piece": "search"}, {"piece": "single"}],
) -> None:
    """Starts from artifacts/sft/model, which is also the reference if the loss needs one. It learns from pairs of that
    model's own answers. In pairs with a planted error, a program wrote both sides: the model would have said neither,
    so learning from them teaches it little and makes both sides less likely.

    `sft_weight` adds the next-token loss of the chosen answers, as in Pang et al. 2024, "Iterative Reasoning Preference
    Optimization" (arXiv 2404.19733); a recipe whose paper has the term sets it.

    Args:
        dtype: type of the weights: float32 or bfloat16
        device: device of the models: cpu, cuda, or cuda:0
        learners: processes that train together, each on its share of a step's rows; at most one per row, on CUDA each
            with its own device
        shards: number of learners that share one copy of weights, gradients and optimizer state (FSDP; HSDP if fewer
            than all); 1: each learner holds a full copy
        steps: optimizer steps
        pairs_per_step: preference pairs of an optimizer step
        tokens_per_microbatch: most tokens of one pass; affects memory, not the result
        gradient_checkpointing: recomputes activations in the backward pass: less memory for about a third more time
        router_loss: weight of the load-balancing loss of a mixture of experts, e.g. 0.001; 0: none
        lora: trains adapters instead of all weights: rank, alpha, modules, merge, base (training/model/lora.py); empty
            trains all weights
        max_length: most tokens of a row; longer rows are left out and counted
        optimizer: the optimizer and the schedule of its learning rate
        sft_weight: weight of the next-token loss of the chosen answers
        checkpoint_every: steps between two checkpoints, from which a killed run resumes
        loss: the preference loss
        ratio: transforms each token's log-ratio before the sum; none: no transform
        rounds: the data of each round, one mapping per round (training.preference.rounds.RoundSpec)
        leave_out: sources of cleaned pairs that are used only by a round that names them: by default pairs with a
            planted error, which train the reward model
        update_rules: method-specific changes besides the loss, applied in this order: the reference, columns, the
            prompts of sampled rounds and the score of an answer
        include_families: whether sampled rounds also play problems of the verifiable families
        samples_per_prompt: rollouts of each problem
        sampling: how answers are sampled in rounds that learn from sampled pairs
        envs: environments in which problems are played, with their knobs
    """
    make_repeatable(stage, device)
    world = together(stage, learners, device, shards)
    specs = read(rounds, steps)
    begins = opening(stage, envs, knowledge.search(stage))
    sides, ids = {"train": Spilled(), "valid": Spilled()}, ListDigest()
    for p in map(begins.pair, tables.each(stage.input("clean", "pairs.parquet"), PreferencePair)):
        ids.add(p.id)
        if p.split in sides:
            sides[p.split].add(p)
    first = first_on(lora, device)
    policy, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=first, longest=max_length)
    reference = (
        load_model(stage.input("sft", "model"), dtype=dtype, device=device)[0] if "reference" in stage.needs else None
    )
    if reference is not None and lora.get("base"):  # it equals the policy before the first step
        quantise(reference, lora["base"])
        plain(reference)
    rules = [make() for make in update_rules]
    if world.mesh is not None:
        _check_split(specs, rules)
    for rule in rules:
        rule.change_reference(reference, lambda name: load_model(_folder(stage, name), dtype=dtype, device=device)[0])
    adapt(policy, lora, seed=seed_for(stage.seed, "prefer", "lora"), device=device)
    renderer = Renderer(tokenizer)
    learner = Learner(
        policy,
        optim(optimizer, steps),
        gradient_checkpointing=gradient_checkpointing,
        router_loss=router_loss,
        world=world,
    )
    objective = PairObjective(
        loss=loss,
        reference=reference,
        policy=learner.model,
        rules=rules,
        ratio=ratio,
        sft=sft_weight,
        needs=frozenset(stage.needs),
        tolerance=1e-4 if dtype == "float32" else 2e-2,
        tokens_per_microbatch=tokens_per_microbatch,
        world=world,
    )
    keeper = Rounds(specs, learner, objective, starts_equal=all(rule.starts_equal for rule in rules))
    problems = ByName(Problems())
    sampled = None
    if loss.unit != "pair" or any(t.pairs == "sampled" for t in specs):
        played = tools.hosts(envs)
        problems = _problems(stage, include_families, played)
        player = Player(
            sampler=TorchSampler(policy, renderer.end_id),
            renderer=renderer,
            envs=played,
            tools=tools.bound(knowledge.search(stage, **sampling.tool()), played.values()),
            max_tokens=max_length,
            sampling=sampling.turn(),
        )
        sampled = SampledPairs(
            problems=problems.problems,
            player=player,
            prompts=pairs_per_step // max(loss.rows_per_unit, 1),
            samples=samples_per_prompt,
            seed=stage.seed,
            pairs_per_unit=loss.rows_per_unit if loss.unit == "prompt" else 1,
            rules=rules,
            device=device,
        )
    known = _Known(sides["train"], leave_out)
    offline = _Offline(stage, loss, known, problems, renderer, max_length, pairs_per_step, device, rules, policy)
    sources: list[Source] = []
    for i, spec in enumerate(specs):
        if spec.pairs == "sampled" and sampled is not None:
            sources.append(
                followed(
                    _sampled(sampled, problems.problems, loss, spec, known), world, device, publish=learner.publish
                )
            )
        else:
            source = offline.source(i, spec)
            for rule in rules:
                source = rule.source(
                    OfflineRound(
                        index=i,
                        source=source,
                        units=offline.units_of,
                        sampled=sampled,
                        loss=loss,
                        policy=policy,
                        reference=reference,
                        seed=stage.seed,
                        tokens_per_microbatch=tokens_per_microbatch,
                    )
                )
            sources.append(source)
    curve = Curve(stage, steps, shown=("loss", "accuracy"), device=device, dtype=dtype)
    drive(
        [
            Round(
                name="prefer" if len(specs) == 1 else f"prefer {i + 1}",
                role="policy",
                objective=objective,
                prepare=objective.prepare,
                steps=spec.steps,
                rows_per_unit=2 * (loss.rows_per_unit or pairs_per_step),
                tokens_per_microbatch=tokens_per_microbatch,
                source=keeper.begins(i, source),
                after=partial(keeper.after, i),
            )
            for i, (spec, source) in enumerate(zip(specs, sources, strict=True))
        ],
        {"policy": learner},
        curve,
        every=checkpoint_every,
        parts={"rounds": keeper},
    )
    learner.publish()
    if not world.first:
        return
    curve.close()
    save_model(policy, tokenizer, stage.out / "model")
    card = {
        "parameters": n_parameters(policy),
        "pairs": offline.pairs,
        "too_long": offline.long,
        **({"begun_as_stored": begins.as_written} if begins.as_written else {}),
        "steps": steps,
        "accuracy": round(curve.mean("accuracy"), 4),
        "trained_on": ids.name(),
    }
    if not any("accuracy" in row for row in curve.rows):  # no sampled prompt gave answers of different scores
        card["accuracy"] = None
    valid = SpilledRows(row for two in two_rows(renderer, sides["valid"], max_length) for row in two)
    if valid:
        card["valid_accuracy"] = round(pair_accuracy(policy, reference, valid, device, tokens_per_microbatch), 4)
    stage.card(card)


def _check_split(specs: Sequence[RoundSpec], rules: Sequence[UpdateRule]) -> None:
    """Raises UserError for settings that read or change whole weights while the weights are split over processes."""
    for i, spec in enumerate(specs):
        if spec.protect or spec.layers:
            raise UserError(
                f"prefer.rounds[{i}]: protect and layers hold updates of whole weights within bounds: leave them out, or set shards=1"
            )
    for rule in rules:
        if any(getattr(type(rule), name) is not getattr(UpdateRule, name) for name in ("rows", "source", "begin")):
            raise UserError(
                f"prefer: the update rule {type(rule).__name__} reads the policy's whole weights: leave it out, or set shards=1"
            )


class _Offline:
    """Batches of the cleaned pairs, in the units and with the columns that the loss asks for; counts the pairs it used.
    `rules` may add token columns to the rows of a unit."""

    def __init__(
        self,
        stage: Stage,
        loss: Callable,
        known: _Known,
        problems: Mapping[str, Problem],
        renderer: Renderer,
        max_length: int,
        pairs_per_step: int,
        device: str,
        rules: Sequence[UpdateRule],
        policy: nn.Module,
    ) -> None:
        self.stage, self.loss, self.known, self.problems, self.renderer = stage, loss, known, problems, renderer
        self.max_length, self.device, self.pairs, self.long = max_length, device, 0, 0
        self.rules, self.policy = rules, policy
        self.own = own_rows(stage.input("clean"))
        if pairs_per_step % max(loss.rows_per_unit, 1):
            raise UserError(
                f"prefer: {loss.piece} sees {loss.rows_per_unit} pairs at once, which does not divide pairs_per_step = {pairs_per_step}"
            )
        self.units_per_step = pairs_per_step if loss.unit == "pair" else pairs_per_step // loss.rows_per_unit
        names = tuple(n for n in columns_of(loss) if not any(n in rule.gives for rule in rules))
        names = (*names, "annotator") if "reliability" in names else names
        self.scalars = columns("prefer", known.train, names) if set(names) - BY_THE_OBJECTIVE else {}

    def source(self, i: int, spec: RoundSpec) -> Source:
        """The batches of round i. Raises UserError if no pair is left to learn from."""
        chosen = self.known.of(spec)
        of_pairs = self.loss.unit == "pair"
        units, n, named = SpilledUnits(), 0, ""
        weights, drawn = array("d"), array("d")  # of each unit, and the number by which a fraction of it is drawn

        def counted() -> Iterator[Sequence[Two]]:
            nonlocal n, named
            for unit in each(self.loss.unit, chosen, self.problems):
                n, named = n + 1, unit[0].pair.id
                yield unit

        for rows in each_unit(self.renderer, counted(), self.max_length, self.scalars):
            if rows:
                for rule in self.rules:
                    rows = rule.rows(self.policy, rows)
                units.add(rows)
                weights.append(self.own[named].weight if named in self.own else 1.0)
                drawn.append(chance(self.stage.seed, named) if self.own else 0.0)
        long = n - len(units)
        too_long(self.stage, long, n, "pairs" if of_pairs else "units", self.max_length)
        if not len(units):
            raise UserError(
                "prefer: no cleaned pair of the split train is left (or all are longer than max_length): see artifacts/clean/card.json"
                + (
                    ""
                    if self.loss.unit == "pair"
                    else f" (the loss needs units of the kind {self.loss.unit!r}, training/preference/units.py)"
                )
            )
        self.pairs, self.long = max(self.pairs, len(units.rows) // 2), self.long + long
        every = shares(np.array(weights), np.array(drawn))
        at = shuffled(
            len(every), self.units_per_step, seed_for(self.stage.seed, "prefer", "order", *([i] if i else []))
        )

        def order(step: int) -> list[int]:
            return every[at(step)].tolist()

        def problem(i: int) -> Problem | None:
            return self.problems.get(chosen[i].problem) if self.problems else None

        def units_of(step: int) -> list[tuple[Row, Row, Problem | None]]:
            return [(rows[0], rows[1], problem(rows[0].group)) for rows in map(units.__getitem__, order(step))]

        self.units_of = units_of
        return lambda step: ([pack([r for u in order(step) for r in units[u]], device=self.device)], {})


def _sampled(sampled: SampledPairs, problems: Problems, loss: Callable, spec: RoundSpec, known: _Known) -> Source:
    """The policy's own pairs, from all problems or from those with the hardest cleaned pairs."""
    lacking = sorted(set(columns_of(loss)) - BY_THE_OBJECTIVE - {"margin"})
    if lacking or loss.unit not in ("pair", "prompt") or (loss.unit == "pair" and loss.rows_per_unit > 1):
        units = f"its units are of the kind {loss.unit!r}, {loss.rows_per_unit} pairs at once"
        why = f"it needs the column {lacking[0]!r}" if lacking else units
        raise UserError(
            f"prefer: {loss.piece} cannot learn from sampled pairs, for {why}: choose `pairs: clean`, or another loss"
        )
    if spec.hardest < 1:
        hard = {p.problem for p in known.of(spec)}
        mine = np.fromiter((name in hard for name in problems.ids()), bool, len(problems))
        sampled = replace(sampled, problems=problems.where(mine))
        if not sampled.problems:
            raise UserError(
                "prefer: none of the hardest pairs names a problem to sample from: leave `hardest` out of the sampled round"
            )
    return sampled


@dataclass(frozen=True)
class _Known:
    """The cleaned pairs of the split train, and the sources that are used only by a round that names them."""

    train: Sequence[PreferencePair]
    leave_out: Sequence[str]

    def of(self, spec: RoundSpec) -> View:
        """The pairs of a round: those of its source, or the easiest or hardest share of them by margin."""
        left_out = () if spec.source else self.leave_out

        def is_mine(p: PreferencePair) -> bool:
            return _is_of(p, spec.source) and not any(_is_of(p, name) for name in left_out)

        every = Ledger(self.train).view(np.arange(len(self.train)))
        mine = every.where(np.fromiter(map(is_mine, every), bool, len(every)))
        if not mine and self.train:
            there = ", ".join(sorted({p.source for p in self.train}))
            raise UserError(
                f"prefer: no pair has the source {spec.source!r}; there are: {there}"
                if spec.source
                else f"prefer: all pairs are of sources in leave_out ({', '.join(left_out)}), as the SFT model's own answers gave none: train "
                "sft for longer until it answers some problems, raise preferences.sampled_problems, or name a source in a round; "
                f"there are: {there}"
            )
        return _by_margin(mine, spec)


def _is_of(pair: PreferencePair, source: str) -> bool:
    return f"{pair.source}/".startswith(f"{source}/" if source else "")


def _by_margin(mine: View, spec: RoundSpec) -> View:
    """The easiest or hardest share of the pairs."""
    if spec.easiest == spec.hardest == 1 or not mine:
        return mine
    gap = margins("prefer", mine)
    order = sorted(range(len(mine)), key=lambda i: -gap[i])
    keep = set(order[: max(1, round(spec.easiest * len(mine)))]) & set(
        order[len(mine) - max(1, round(spec.hardest * len(mine))) :]
    )
    return mine.where(np.isin(np.arange(len(mine)), list(keep)))


def _problems(stage: Stage, include_families: bool, played: Container[str]) -> ByName:
    """Training problems by id: questions and, if wanted, problems of the families, of environments that are played."""
    names = ["questions", *["problems"] * include_families]
    each = (p for name in names for p in tables.each(stage.input(name, "problems.parquet"), Problem))
    known = ByName(Problems(p for p in each if p.split == "train")).problems
    return ByName(known.where(np.fromiter((p.env in played for p in known), bool, len(known))))


def _folder(stage: Stage, name: str) -> Path:
    return stage.input("sft", "base") if name == "base" else stage.source(name)


def pair_accuracy(policy, reference, rows: Sequence[Row], device: str, tokens_per_microbatch: int) -> float:
    """Share of pairs whose chosen answer has a larger log-ratio to the reference than the rejected one (a larger
    log-probability, without a reference)."""
    right = 0
    for lo in range(0, len(rows), SCORED):
        batch = pack(rows[lo : lo + SCORED], device=device)
        logp = score(policy, batch, tokens_per_microbatch=tokens_per_microbatch).logp
        if reference is not None:
            logp = logp - score(reference, batch, tokens_per_microbatch=tokens_per_microbatch).logp
        sums = batch.row_sum(logp)
        right += int((sums[0::2] > sums[1::2]).sum())
    return right / (len(rows) // 2)
