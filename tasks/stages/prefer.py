"""The stage `prefer`: preference optimisation of the SFT model on the cleaned pairs, in one round or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from synth.types import PreferencePair, Problem, Sampling, digest, seed_for
from tasks.disk import tables
from tasks.errors import UserError
from tasks.learning import Curve, drive, make_repeatable, shuffled
from tasks.pairs import BY_THE_OBJECTIVE, columns, margins
from tasks.planning.pieces import Piece, Pieces
from tasks.play import knowledge, tools
from tasks.rows import pair_rows
from tasks.stage import Stage
from tasks.turns import Turn, Turns, read
from tasks.units import UNITS, rows_of
from training.focus import with_attention
from training.learner import Learner, Optim, score
from training.lora import adapt
from training.meta import MetaWeight
from training.model import load_model, n_parameters, save_model
from training.online import MetaPairs, SampledPairs
from training.pack import Row, pack
from training.pairs import PairObjective, columns_of
from training.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler
from training.rounds import Round, Source
from training.soup import soup

PROVIDES = {"reference", "policy", "history", "mismatched"}


def prefer(
    stage: Stage,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    steps: int = 240,
    pairs_per_step: int = 16,
    tokens_per_microbatch: int = 16384,
    recompute: bool = False,
    lora: dict = {},  # noqa: B006
    max_length: int = 512,
    optimizer: str = "adamw",
    lr: float = 2e-4,
    matrix_lr: float = 0.005,
    warmup: int = 10,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
    sft_weight: float = 0.2,
    checkpoint_every: int = 40,
    loss: Piece("training.prefer") = {"piece": "dpo", "beta": 0.1},
    ratio: Piece("training.ratio") = None,
    rounds: list = [{}],
    soup_of: list = [],
    soup_weight: float = 0.5,
    earlier: int = 2,
    attention_layers: list = [],
    families: bool = True,
    samples_per_prompt: int = 8,
    temperature: float = 1.0,
    max_turn_tokens: int = 48,
    k: int = 3,
    length_penalty: float = 0.0,
    angles: list = [],
    meta_lr: float = 0.005,
    envs: Pieces("training.env") = [{"piece": "search"}, {"piece": "single"}],
) -> None:
    """Starts from artifacts/sft/model, which is the reference too where the loss needs one. `sft_weight` weighs the next-token loss of the
    chosen answers beside the preference loss (Pang et al. 2024, "Iterative Reasoning Preference Optimization", arXiv 2404.19733): without
    it the chosen answers of a small model lose probability together with the rejected ones.

    recompute, lora   activation checkpointing, and adapters in the place of all weights, as in the stage `sft`
    rounds            one mapping for every round: `tasks.turns.Turn` says what it may hold
    ratio             reshapes each token's log-ratio before the sum (humanline, attended)
    soup_of           folders of models whose mean with the SFT model is the reference ("base": artifacts/sft/base); `soup_weight` is the
                      SFT model's share (training/soup.py)
    earlier           policies kept for a loss that needs "history": those of the ends of the last rounds
    attention_layers  those whose attention from an answer to its prompt is the column "attention" (training/focus.py)
    families ... envs of sampled rounds, as in the stage `rl`; `length_penalty` and `angles`: training/online.py
    """
    make_repeatable(stage, device)
    turns = read(rounds, steps)
    pairs = tables.read(stage.input("clean", "pairs.parquet"), PreferencePair)
    train = [p for p in pairs if p.split == "train"]
    policy, tokenizer = load_model(stage.input("sft", "model"), dtype=dtype, device=device)
    reference = load_model(stage.input("sft", "model"), dtype=dtype, device=device)[0] if "reference" in stage.needs else None
    if soup_of and reference is not None:
        others = [load_model(_folder(stage, name), dtype=dtype, device=device)[0] for name in soup_of]
        soup([reference, *others], [soup_weight, *[(1 - soup_weight) / len(others)] * len(others)])
    adapt(policy, lora, seed=seed_for(stage.seed, "prefer", "lora"))
    renderer = Renderer(tokenizer)
    objective = PairObjective(
        loss=loss, reference=reference, policy=policy, earlier=[], ratio=ratio, sft=sft_weight, needs=frozenset(stage.needs),
        tolerance=1e-4 if dtype == "float32" else 2e-2, tokens_per_microbatch=tokens_per_microbatch,
    )  # fmt: skip
    learner = Learner(policy, Optim(kind=optimizer, lr=lr, matrix_lr=matrix_lr, warmup=warmup, steps=steps, weight_decay=weight_decay,
                                    max_grad_norm=max_grad_norm, decay="linear", final=0.1), recompute=recompute)  # fmt: skip
    keeper = Turns(turns, learner, objective, starts_equal=not soup_of, keep=earlier)
    problems: dict[str, Problem] = {}
    sampled = None
    if loss.unit != "pair" or any(t.pairs == "sampled" for t in turns):
        hosts = {e.piece.rpartition("/")[2]: e() for e in envs}
        problems = {i: p for i, p in _problems(stage, families).items() if p.env in hosts}
        player = Player(
            sampler=TorchSampler(policy, renderer.end_id), renderer=renderer, envs=hosts,
            tools=tools.bound(knowledge.search(stage, k=k), hosts.values()), max_tokens=max_length,
            sampling=Sampling(temperature=temperature, max_tokens=max_turn_tokens),
        )  # fmt: skip
        sampled = SampledPairs(
            problems=list(problems.values()), player=player, prompts=pairs_per_step // max(loss.together, 1), samples=samples_per_prompt,
            seed=stage.seed, together=loss.together if loss.unit == "prompt" else 1, length_penalty=length_penalty, angles=angles,
            limit=max_turn_tokens, device=device,
        )  # fmt: skip
    dress = partial(with_attention, policy, layers=attention_layers) if attention_layers else list
    offline = _Offline(stage, loss, train, problems, renderer, max_length, pairs_per_step, device, dress)
    parts: dict[str, Any] = {"turns": keeper}
    sources: list[Source] = []
    for i, turn in enumerate(turns):
        if turn.pairs == "sampled":
            sources.append(_sampled(sampled, loss, turn, train))
        else:
            sources.append(offline.source(i, turn))
            if loss.unit == "meta":
                parts[f"meta {i}"] = sources[i] = MetaPairs(
                    offline=offline.units_of, sampled=sampled, policy=policy, reference=reference,
                    meta=MetaWeight(lr=meta_lr, seed=seed_for(stage.seed, "prefer", "meta", i)), beta=loss.keywords.get("beta", 0.1),
                    tokens_per_microbatch=tokens_per_microbatch,
                )  # fmt: skip
    curve = Curve(stage, steps, shown=("loss", "accuracy"), device=device, dtype=dtype)
    drive(
        [Round(name="prefer" if len(turns) == 1 else f"prefer {i + 1}", role="policy", objective=objective, prepare=objective.prepare,
               steps=turn.steps, together=2 * (loss.together or pairs_per_step), tokens_per_microbatch=tokens_per_microbatch,
               source=keeper.begins(i, source), after=partial(keeper.after, i))
         for i, (turn, source) in enumerate(zip(turns, sources, strict=True))],
        {"policy": learner}, curve, every=checkpoint_every, parts=parts,
    )  # fmt: skip
    curve.close()
    save_model(policy, tokenizer, stage.out / "model")
    card = {"parameters": n_parameters(policy), "pairs": offline.pairs, "too_long": offline.long, "steps": steps,
            "accuracy": round(curve.mean("accuracy"), 4), "trained_on": digest([p.id for p in pairs])}  # fmt: skip
    if not any("accuracy" in row for row in curve.rows):  # no prompt that was sampled gave answers of different scores
        card["accuracy"] = None
    valid, _ = pair_rows(renderer, (p for p in pairs if p.split == "valid"), max_length)
    if valid:
        card["valid_accuracy"] = round(pair_accuracy(policy, reference, valid, device, tokens_per_microbatch), 4)
    stage.card(card)


class _Offline:
    """Sources of the cleaned pairs, in the units and with the columns that the loss asks for; counts what it used. `dress` adds columns of
    tokens to the rows of a unit."""

    def __init__(
        self, stage: Stage, loss: Callable, train: Sequence[PreferencePair], problems: dict[str, Problem], renderer: Renderer,
        max_length: int, pairs_per_step: int, device: str, dress: Callable[[list[Row]], list[Row]],
    ) -> None:  # fmt: skip
        self.stage, self.loss, self.train, self.problems, self.renderer = stage, loss, train, problems, renderer
        self.max_length, self.device, self.dress, self.pairs, self.long = max_length, device, dress, 0, 0
        if pairs_per_step % max(loss.together, 1):
            raise UserError(
                f"prefer: {loss.piece} sees {loss.together} pairs at once, which does not divide pairs_per_step = {pairs_per_step}"
            )
        self.units_per_step = pairs_per_step if loss.unit == "pair" else pairs_per_step // loss.together
        names = columns_of(loss) if loss.unit != "meta" else ()
        names = (*names, "annotator") if "reliability" in names else names
        self.scalars = columns("prefer", train, names) if set(names) - BY_THE_OBJECTIVE else {}

    def source(self, i: int, turn: Turn) -> Source:
        """The batches of round i. Raises UserError where nothing is left to learn from."""
        chosen = _chosen(self.train, turn)
        units, long = rows_of(self.renderer, UNITS[self.loss.unit](chosen, self.problems), self.max_length, self.scalars)
        if not units:
            raise UserError(
                "prefer: no cleaned pair of the split train is left (or all are longer than max_length): see artifacts/clean/card.json"
                + ("" if self.loss.unit == "pair" else f" (the loss needs units of the kind {self.loss.unit!r}, tasks/units.py)")
            )
        units = [self.dress(rows) for rows in units]
        self.pairs, self.long = max(self.pairs, sum(map(len, units)) // 2), self.long + long
        order = shuffled(len(units), self.units_per_step, seed_for(self.stage.seed, "prefer", "order", *([i] if i else [])))
        asked = [self.problems.get(p.problem) for p in chosen]
        self.units_of = lambda step: [(*units[u][:2], asked[units[u][0].group]) for u in order(step)]
        return lambda step: ([pack([r for u in order(step) for r in units[u]], device=self.device)], {})


def _sampled(sampled: SampledPairs, loss: Callable, turn: Turn, train: Sequence[PreferencePair]) -> Source:
    """The policy's own pairs, of all problems or of those whose cleaned pairs are the hardest."""
    lacking = sorted(set(columns_of(loss)) - BY_THE_OBJECTIVE - {"margin"})
    if lacking or loss.unit not in ("pair", "prompt") or (loss.unit == "pair" and loss.together > 1):
        units = f"its units are of the kind {loss.unit!r}, {loss.together} pairs at once"
        why = f"it needs the column {lacking[0]!r}" if lacking else units
        raise UserError(f"prefer: {loss.piece} cannot learn from sampled pairs, for {why}: choose `pairs: clean`, or another loss")
    if turn.hardest < 1:
        hard = {p.problem for p in _chosen(train, turn)}
        sampled = replace(sampled, problems=[p for p in sampled.problems if p.id in hard])
        if not sampled.problems:
            raise UserError("prefer: none of the hardest pairs names a problem to sample from: leave `hardest` out of the sampled round")
    return sampled


def _chosen(train: Sequence[PreferencePair], turn: Turn) -> list[PreferencePair]:
    """The pairs of a round: of its source, and among them the easiest or hardest share by margin."""
    mine = [p for p in train if f"{p.source}/".startswith(f"{turn.source}/" if turn.source else "")]
    if not mine and train:
        raise UserError(f"prefer: no pair has the source {turn.source!r}; there are: {', '.join(sorted({p.source for p in train}))}")
    if turn.easiest == turn.hardest == 1 or not mine:
        return mine
    gap = margins("prefer", mine)
    order = sorted(range(len(mine)), key=lambda i: -gap[i])
    keep = set(order[: max(1, round(turn.easiest * len(mine)))]) & set(order[len(mine) - max(1, round(turn.hardest * len(mine))) :])
    return [p for i, p in enumerate(mine) if i in keep]


def _problems(stage: Stage, families: bool) -> dict[str, Problem]:
    """Training problems by id, questions and, where asked, those of the families."""
    found = tables.read(stage.input("questions", "problems.parquet"), Problem)
    if families:
        found += tables.read(stage.input("problems", "problems.parquet"), Problem)
    return {p.id: p for p in found if p.split == "train"}


def _folder(stage: Stage, name: str) -> Path:
    return stage.input("sft", "base") if name == "base" else stage.source(name)


def pair_accuracy(policy, reference, rows, device: str, tokens_per_microbatch: int) -> float:
    """Share of pairs whose chosen answer gained more log-probability over the reference (over nothing, without one) than the rejected."""
    batch = pack(rows, device=device)
    logp = score(policy, batch, tokens_per_microbatch=tokens_per_microbatch).logp
    if reference is not None:
        logp = logp - score(reference, batch, tokens_per_microbatch=tokens_per_microbatch).logp
    sums = batch.row_sum(logp)
    return float((sums[0::2] > sums[1::2]).double().mean())
