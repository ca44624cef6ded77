"""The learner: one optimizer step from one packed batch and one objective. It is independent of the algorithm and
divides exactly once.

An objective is `f(stats, batch) -> list[Terms]`: values to be summed and the name of the total that divides them. The
learner splits the batch by a token budget, runs the model, asks the objective, divides each term by the *global* total
and accumulates gradients: how a batch is split changes nothing but memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from training.learner import shard
from training.learner.muon import Muon
from training.learner.pack import Stream, dealt, select, split
from training.learner.profile import Clock, flops, peak_mb
from training.learner.world import ONE, World, alive, talking
from training.lm_head.fused_loss import fused_policy_loss, plan
from training.lm_head.logprob import Asked, Head, fused_logprob, fused_stats, limits
from training.model.model import checkpointed_layers, head_weight, hidden_states
from training.model.router import balance, replay_of
from training.types import Batch, Metrics, Terms, TokenStats

Objective = Callable[[TokenStats, Batch], Iterable[Terms]]
Read = Callable[..., TokenStats]  # (model, batch, *, temperature) -> what an objective sees of the model


@dataclass(frozen=True, kw_only=True)
class Optim:
    """The optimizer and its schedule: linear warm-up, then constant, linear or cosine decay to `final` x lr over
    `steps`.

    kind "muon" (Jordan et al. 2024; torch.optim.Muon) takes the hidden weight matrices with rate `matrix_lr` and leaves
    the embedding, head and vectors to AdamW: with it a model of a million parameters trained from scratch learns to
    copy in a third of the steps. "sgd" is the plain step, lr times the gradient, so none is longer than lr times
    `max_grad_norm`.
    """

    kind: str = "adamw"
    lr: float = 1e-3
    matrix_lr: float = 0.05
    warmup: int = 20
    steps: int = 1000
    decay: str = "cosine"
    final: float = 0.1
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.95)
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        for name, known in (("kind", ("adamw", "muon", "sgd")), ("decay", ("constant", "linear", "cosine"))):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"the optimizer's {name} is {getattr(self, name)!r}; choose {' or '.join(map(repr, known))}"
                )

    def at(self, step: int) -> float:
        """The factor on the learning rates at a step (counted in updates from 0)."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        u = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        shape = {"constant": 1.0, "linear": 1 - u, "cosine": 0.5 * (1 + math.cos(math.pi * u))}[self.decay]
        return self.final + (1 - self.final) * shape


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The trainable targets of a batch; a target that several rows share occurs once.

    before  [U, d] the hidden states before the U distinct targets
    ids     [U] their ids
    at      [N] the positions of the N trainable targets in the batch
    which   [N] which of the U each of them is; None if none is shared (then U is N)
    """

    before: Tensor
    ids: Tensor
    at: Tensor
    which: Tensor | None = None

    @staticmethod
    def of(model: nn.Module, batch: Batch) -> Targets:
        """A prefix that rows share is computed once; index_select adds up the gradients of all rows that read it."""
        stream = Stream.of(batch)
        if (routers := replay_of(model)) is not None:
            routers.chosen = stream.experts
        hidden = hidden_states(model, stream.ids, stream.position, stream.rows)
        at = batch.trainable.nonzero().squeeze(1)
        before, ids = stream.at(at - 1), batch.ids.index_select(0, at)
        if stream.place is None:
            return Targets(before=hidden.index_select(0, before), ids=ids, at=at)
        own, which = stream.at(at).unique(return_inverse=True)
        if len(own) == len(at):
            return Targets(before=hidden.index_select(0, before), ids=ids, at=at)
        # rows that share a token share the one before it, so any of them gives its position
        before = torch.empty_like(own).scatter_(0, which, before)
        return Targets(before=hidden.index_select(0, before), ids=stream.ids.index_select(0, own), at=at, which=which)

    def each(self, x: Tensor) -> Tensor:
        """[U, ...] of the different targets -> [N, ...] of all."""
        return x if self.which is None else x.index_select(0, self.which)

    def spread(self, x: Tensor, n: int) -> Tensor:
        """Put [U] numbers at their positions among the n tokens of the batch, 0 elsewhere."""
        return torch.zeros(n, dtype=x.dtype, device=x.device).index_add(0, self.at, self.each(x))


def token_stats(model: nn.Module, batch: Batch, *, temperature: float = 1.0) -> TokenStats:
    """logp [T] and entropy [T] of each trainable target, 0 elsewhere: only the hidden states of trainable targets reach
    the head."""
    return _stats(model, batch, Targets.of(model, batch), temperature)


def _stats(model: nn.Module, batch: Batch, targets: Targets, temperature: float) -> TokenStats:
    logp, entropy = fused_logprob(targets.before, head_weight(model), targets.ids, temperature=temperature)
    logp, entropy = targets.spread(logp, len(batch.ids)), targets.spread(entropy, len(batch.ids))
    if "allowed" in batch.columns:
        logp, entropy = _among_allowed(model, batch, targets, temperature, logp, entropy)
    return TokenStats(
        logp=logp,
        entropy=entropy,
        distribution=lambda: torch.log_softmax(
            (targets.each(targets.before) @ head_weight(model).T).float() / temperature, -1
        ),
        head=lambda: (targets.each(targets.before), Head(weight=head_weight(model), temperature=temperature)),
    )


def _among_allowed(
    model: nn.Module, batch: Batch, targets: Targets, temperature: float, logp: Tensor, entropy: Tensor
) -> tuple[Tensor, Tensor]:
    """logp and entropy [T] with those of targets that were held to choices taken among what could be drawn: of the column
    `allowed` [T, A] (ids + 1, 0: no more; all 0: any token), as the sampler renormalised it."""
    offered = batch.columns["allowed"].index_select(0, targets.at).long()
    held = (offered > 0).any(1).nonzero().squeeze(1)
    if not len(held):
        return logp, entropy
    offered, at = offered[held], targets.at.index_select(0, held)
    before, ids = targets.each(targets.before).index_select(0, held), batch.ids.index_select(0, at)
    head = Head(weight=head_weight(model), temperature=temperature)
    selected = fused_stats(before, head, ids, Asked(selected=(offered - 1).clamp(min=0))).selected
    assert selected is not None
    inner = torch.log_softmax(selected.masked_fill(offered == 0, -torch.inf), 1)
    own = inner.gather(1, (offered == ids[:, None] + 1).int().argmax(1, keepdim=True)).squeeze(1)
    spread = torch.where(offered > 0, inner, 0.0)
    return (
        logp.index_copy(0, at, own.to(logp.dtype)),
        entropy.index_copy(0, at, -(spread.exp() * spread * (offered > 0)).sum(1).to(entropy.dtype)),
    )


@torch.no_grad()
def score(
    model: nn.Module,
    batch: Batch,
    *,
    temperature: float = 1.0,
    tokens_per_microbatch: int = 16384,
    read: Read = token_stats,
) -> TokenStats:
    """The result of `read` without gradient, computed in parts: for reference, old-policy, value and check passes."""
    parts = [read(model, b, temperature=temperature) for b in split(batch, tokens_per_microbatch)]
    entropies = [p.entropy for p in parts if p.entropy is not None]
    return TokenStats(
        logp=torch.cat([p.logp for p in parts]),
        entropy=torch.cat(entropies) if entropies else None,
        extras={k: torch.cat([p.extras[k] for p in parts]) for k in parts[0].extras},
    )


@torch.no_grad()
def score_together(
    model: nn.Module,
    batch: Batch,
    world: World,
    *,
    temperature: float = 1.0,
    tokens_per_microbatch: int = 16384,
    read: Read = token_stats,
) -> Tensor:
    """The log-probs [T] of `score`, each part computed by one of the processes; all processes must call this."""
    if world.size == 1:
        return score(model, batch, temperature=temperature, tokens_per_microbatch=tokens_per_microbatch, read=read).logp
    parts = dealt(batch, tokens_per_microbatch, 1, world.size)
    with talking(world):
        logp = torch.cat(
            [
                _alive(read, model, part, temperature).logp
                if owner == world.rank
                else torch.zeros(len(part.ids), device=batch.ids.device)
                for owner, part in parts
            ]
        )
        if shard.is_split(model):
            for _ in range(_fewer(parts, world)):
                _anchor(model, batch)
    world.sum([logp])
    return logp


def _alive(read: Read, model: nn.Module, part: Batch, temperature: float) -> TokenStats:
    alive()
    return read(model, part, temperature=temperature)


def _fewer(parts: Sequence[tuple[int, Batch]], world: World) -> int:
    """How many fewer micro-batches this process has than the process with the most."""
    each = [sum(owner == rank for owner, _ in parts) for rank in range(world.size)]
    return max(each) - each[world.rank]


def _anchor(model: nn.Module, batch: Batch) -> Tensor:
    """0 with a gradient of zeros, from a pass over one short row: when one process computes with a split model, every
    process has to give its share, whether it has a micro-batch or not."""
    row = min(range(batch.rows), key=batch.lengths.__getitem__)
    part = select(batch, row, row + 1)
    stream = Stream.of(part)
    reached = hidden_states(model, stream.ids, stream.position, stream.rows).sum()
    # the root's weights, gathered until the backward pass: the head of a model is not in its body
    for p in model.parameters():
        if p.requires_grad and not shard.is_split(p):
            reached = reached + p.flatten()[:1].sum()
    return reached * 0


@dataclass(frozen=True, kw_only=True)
class Accumulated:
    """What the passes over a batch gave besides gradients: the loss, the number of NaN log-probs, the floating-point
    operations, and sums and counts of the metrics."""

    total: Tensor
    lost: Tensor
    work: float
    sums: dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Passes:
    """What an estimator of the gradient may ask for, with the weights that the model has at that moment: add(batch) adds
    the gradients of the step's objective on a batch, logp(batch) gives log-probs [T] without gradient."""

    add: Callable[[Batch], Accumulated]
    logp: Callable[[Batch], Tensor]


class Estimator(Protocol):
    """Puts an estimate in the place of a step's gradient (training/rl/gradient)."""

    def gradient(self, learner: Learner, batch: Batch, passes: Passes) -> Accumulated: ...

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: Mapping[str, Any]) -> None: ...


@dataclass
class Learner:
    """A model with its optimizer. `step` performs one update and returns metrics; `state`/`load_state` make it
    resumable.

    weights  the trained parameters
    master   what the optimizers update: the weights themselves, or float32 copies of half-precision ones. An update of
             1e-5 is lost in bfloat16, whose numbers near 0.02 lie 1e-4 apart; gradients of micro-batches are summed in
             float32 too.

    read     turns the model's pass into statistics: log-probs of a policy, or values of a critic
    logits   float32 logits of a micro-batch that may be alive at once (4 bytes each); more are computed in chunks.
             None: 2^25 on a CPU, 2^28 on a GPU (`Limits` of training/lm_head/logprob.py)
    gradient_checkpointing  activations of a layer are recomputed in the backward pass, not kept
                            (`training.model.model.checkpointed_layers`)
    router_loss  weight of the loss that balances the experts of a mixture (`training.model.router.balance`): computed
             per micro-batch, weighted by its share of the tokens
    estimator  what makes the gradient of a step, if not the step's batch alone (`step`)
    world    the processes that learn together: all call `step` with the same batch, and each computes its share
    whole    the model that was given. It is `model`, unless the world splits weights: then `model` is a copy of which
             each process holds a share (training/learner/shard.py), `publish` copies the learned weights to `whole`,
             and until then only the first process keeps the weights of `whole`

    Dropout is off, in training too, so that the learner computes the same policy as the sampler.
    """

    model: nn.Module
    optim: Optim
    step_count: int = 0
    read: Read = token_stats
    logits: int | None = None
    gradient_checkpointing: bool = False
    router_loss: float = 0.0
    estimator: Estimator | None = None
    world: World = ONE
    whole: nn.Module = field(init=False)
    weights: list[Tensor] = field(init=False)
    master: list[Tensor] = field(init=False)
    optimizers: list[torch.optim.Optimizer] = field(init=False)

    def __post_init__(self) -> None:
        o = self.optim
        self.model.eval()
        self.whole = self.model
        if self.world.mesh is not None:
            self.model = shard.split(self.whole, self.world)
            self.let_go()
        names, self.weights = map(
            list, zip(*((n, p) for n, p in self.model.named_parameters() if p.requires_grad), strict=True)
        )
        self.master = [p if p.dtype.itemsize >= 4 else p.detach().float() for p in self.weights]
        hidden = [
            o.kind == "muon" and m.dim() == 2 and "embed" not in n and "lm_head" not in n
            for n, m in zip(names, self.master, strict=True)
        ]
        rest = [m for m, h in zip(self.master, hidden, strict=True) if not h]
        groups = [
            {"params": [m for m in rest if m.dim() >= 2], "weight_decay": o.weight_decay},
            {"params": [m for m in rest if m.dim() < 2], "weight_decay": 0.0},
        ]
        groups = [g for g in groups if g["params"]]  # none if Muon has all: adapters are matrices
        self.optimizers = []
        if groups and o.kind == "sgd":
            self.optimizers.append(torch.optim.SGD(groups, lr=o.lr))
        elif groups:
            self.optimizers.append(torch.optim.AdamW(groups, lr=o.lr, betas=o.betas, fused=True))
        if any(hidden):
            matrices = [m for m, h in zip(self.master, hidden, strict=True) if h]
            self.optimizers.append(Muon(matrices, lr=o.matrix_lr, momentum=0.95, weight_decay=o.weight_decay))
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["base_lr"] = group["lr"]

    def step(
        self,
        batch: Batch,
        objective: Objective,
        *,
        tokens_per_microbatch: int = 16384,
        rows_per_unit: int = 1,
        temperature: float = 1.0,
    ) -> dict[str, float]:
        """One optimizer step. Raises FloatingPointError when a log-prob or the gradient is NaN or infinite (weights are
        then unchanged), LookupError for a denominator that nothing counted, and ValueError for a micro-batch that does
        not fit into memory.

        Among the times, `head` is head and loss, with their backward pass if the two are computed together (`_local`);
        `sync` is waiting for the device's numbers and publishing master copies.
        """
        with talking(self.world):
            return self._step(batch, objective, tokens_per_microbatch, rows_per_unit, temperature)

    def _step(
        self, batch: Batch, objective: Objective, tokens_per_microbatch: int, rows_per_unit: int, temperature: float
    ) -> dict[str, float]:
        device = batch.ids.device
        clock = Clock(device)
        self.drop_gradients()
        passes = Passes(
            add=lambda b: self._accumulate(b, objective, tokens_per_microbatch, rows_per_unit, temperature, clock),
            logp=lambda b: (
                score(
                    self.model, b, temperature=temperature, tokens_per_microbatch=tokens_per_microbatch, read=self.read
                ).logp
            ),
        )
        seen = passes.add(batch) if self.estimator is None else self.estimator.gradient(self, batch, passes)
        total, lost, work, sums = seen.total, seen.lost, seen.work, seen.sums
        self._share_gradients()
        clock.mark("sync")
        norm = shard.whole(torch.nn.utils.clip_grad_norm_(self.master, self.optim.max_grad_norm))
        clock.mark("optimizer")
        names = list(sums)
        numbers = torch.stack(
            [x.to(device, torch.float64) for x in (total, norm, lost, *(v for pair in sums.values() for v in pair))]
        )
        total, norm, lost, *rest = numbers.tolist()  # the one time that the host waits for the device
        if self.world.size > 1:
            total, lost, work, names, rest = self._over_processes(total, lost, work, names, rest)
        clock.mark("sync")
        if lost or not math.isfinite(norm):  # pieces skip an impossible token (log-prob -inf); NaN is an error
            what = f"gradient norm is {norm}" if not math.isfinite(norm) else f"log-probs of {lost:.0f} tokens are nan"
            raise FloatingPointError(
                f"the {what} at step {self.step_count}: lower the learning rate or look at the batch that caused it"
            )
        factor = self.optim.at(self.step_count)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * factor
            optimizer.step()
        clock.mark("optimizer")
        self._publish()
        clock.mark("sync")
        self.step_count += 1
        times = clock.seconds()
        seconds = sum(times.values())
        return (
            {name: s / n for name, s, n in zip(names, rest[::2], rest[1::2], strict=True) if n}
            | times
            | {
                "loss": total,
                "grad_norm": norm,
                "lr": self.optim.lr * factor,
                "learn_seconds": seconds,
                "tokens_per_second": len(batch.ids) / seconds,
                "flops_per_second": work / seconds,
                "peak_mb": peak_mb(device),
            }
        )

    def forward_backward(
        self,
        batch: Batch,
        objective: Objective,
        *,
        tokens_per_microbatch: int = 16384,
        rows_per_unit: int = 1,
        temperature: float = 1.0,
    ) -> dict[str, float]:
        """The first half of `step`: adds the gradients of a batch to those accumulated for `optim_step`. Returns its
        loss and metrics. Raises what `step` raises; all accumulated gradients are then dropped."""
        seen = self._accumulate(
            batch, objective, tokens_per_microbatch, rows_per_unit, temperature, Clock(batch.ids.device)
        )
        if nan := int(seen.lost):
            self.drop_gradients()
            raise FloatingPointError(
                f"the log-probs of {nan} tokens are nan: lower the learning rate or look at the batch"
            )
        return {name: float(s / n) for name, (s, n) in seen.sums.items() if n} | {"loss": float(seen.total)}

    def optim_step(
        self,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float = math.inf,
    ) -> dict[str, float]:
        """The second half of `step`, with the given settings instead of a schedule: one update by the accumulated
        gradients, which are then dropped. As in `step`, vectors have no weight decay. Raises FloatingPointError for a
        NaN or infinite gradient (weights are then unchanged)."""
        self._share_gradients()
        norm = float(shard.whole(torch.nn.utils.clip_grad_norm_(self.master, max_grad_norm)))
        if not math.isfinite(norm):
            self.drop_gradients()
            raise FloatingPointError(f"the gradient norm is {norm}: lower the learning rate or look at the batch")
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                decay = weight_decay if group["params"][0].dim() >= 2 else 0.0
                group.update(lr=lr, betas=betas, eps=eps, weight_decay=decay)
            optimizer.step()
        self._publish()
        self.step_count += 1
        self.drop_gradients()
        return {"grad_norm": norm, "lr": lr}

    def drop_gradients(self) -> None:
        """Drop the accumulated gradients."""
        for p in (*self.weights, *self.master):
            p.grad = None

    def _accumulate(
        self,
        batch: Batch,
        objective: Objective,
        tokens: int,
        rows_per_unit: int,
        temperature: float,
        clock: Clock,
    ) -> Accumulated:
        """Add the gradients of this process's micro-batches."""
        device, work = batch.ids.device, 0.0
        total, lost = (torch.zeros((), dtype=torch.float64, device=device) for _ in range(2))
        sums: dict[str, tuple[Tensor, Tensor]] = {}
        mine, fewer = self._mine(batch, tokens, rows_per_unit)
        for part in mine:
            alive()
            with _fitting(part, tokens, self.gradient_checkpointing):
                share = len(part.ids) / len(batch.ids)
                loss, metrics, nan = self._balanced(part, objective, temperature, clock, share)
                for one in metrics:
                    _add(sums, one)
                if loss.requires_grad:
                    loss.backward()
                    self._collect()
            clock.mark("backward")
            total, lost = total + loss.detach(), lost + nan
            if self.read is token_stats:
                work += self._flops(part)
        for _ in range(fewer):
            _anchor(self.model, batch).backward()
        return Accumulated(total=total, lost=lost, work=work, sums=sums)

    def _mine(self, batch: Batch, tokens: int, rows_per_unit: int) -> tuple[Iterable[Batch], int]:
        """The micro-batches that this process computes, and how many anchor passes follow them."""
        if self.world.size == 1:
            return split(batch, tokens, rows_per_unit), 0
        parts = dealt(batch, tokens, rows_per_unit, self.world.size)
        mine = [part for owner, part in parts if owner == self.world.rank]
        return mine, _fewer(parts, self.world) if self.world.mesh is not None else 0

    def _share_gradients(self) -> None:
        """Replace each gradient by its sum over the processes. A weight that no process reached keeps no gradient. For
        split weights the backward pass has summed already."""
        if self.world.size == 1 or self.world.mesh is not None:
            return
        reached = [any(has) for has in zip(*self.world.gather([m.grad is not None for m in self.master]), strict=True)]
        shared = [m for m, has in zip(self.master, reached, strict=True) if has]
        for m in shared:
            m.grad = torch.zeros_like(m) if m.grad is None else m.grad
        self.world.sum([m.grad for m in shared if m.grad is not None])

    def _over_processes(
        self, total: float, lost: float, work: float, names: list[str], rest: list[float]
    ) -> tuple[float, float, float, list[str], list[float]]:
        """The numbers of a step combined from all processes. A process without a micro-batch does not know the
        names."""
        sums: dict[str, tuple[Tensor, Tensor]] = {}
        told = self.world.gather((total, lost, work, list(zip(names, rest[::2], rest[1::2], strict=True))))
        for *_, metrics in told:
            _add(sums, {name: (s, n) for name, s, n in metrics})
        total, lost, work = (sum(one[i] for one in told) for i in range(3))
        return total, lost, work, list(sums), [float(x) for pair in sums.values() for x in pair]

    @cached_property
    def _flops(self) -> Callable[[Batch], float]:
        return flops(self.model)

    def _balanced(
        self, part: Batch, objective: Objective, temperature: float, clock: Clock, share: float
    ) -> tuple[Tensor, list[Mapping[str, Any]], Tensor]:
        """`_loss`, plus the routers' loss if it is set; share: the micro-batch's share of the step's tokens."""
        if not self.router_loss:
            return self._loss(part, objective, temperature, clock)
        with balance(self.model) as uneven:
            loss, metrics, nan = self._loss(part, objective, temperature, clock)
            value = share * uneven()
        return loss + self.router_loss * value, [*metrics, {"router_loss": (value, share)}], nan

    def _loss(
        self, part: Batch, objective: Objective, temperature: float, clock: Clock
    ) -> tuple[Tensor, list[Mapping[str, Any]], Tensor]:
        """Loss and metrics of a micro-batch, and the number of its NaN log-probs."""
        with checkpointed_layers(self.model) if self.gradient_checkpointing else nullcontext():
            if self.read is token_stats:
                targets = Targets.of(self.model, part)
            else:
                stats = self.read(self.model, part, temperature=temperature)
        clock.mark("forward")
        if self.read is token_stats:
            if "allowed" not in part.columns and self._local(len(targets.ids), objective):
                out = self._at_once(part, targets, objective, temperature)
                clock.mark("head")
                return out
            stats = _stats(self.model, part, targets, temperature)
        loss, metrics = divided(objective(stats, part), part)
        clock.mark("head")
        return loss, metrics, stats.logp.isnan().sum()

    def _local(self, n: int, objective: Objective) -> bool:
        """Whether the head and the loss of n targets are computed together, chunk by chunk. They are if the objective
        says that a token's gradient depends on its own statistics alone (`scope`) and the logits are too many to
        keep."""
        scope = getattr(objective, "scope", "batch")
        if scope != "token":
            return False
        weight = head_weight(self.model)
        how = plan(n, len(weight), scope=scope, elements=self.logits, on=limits(weight))
        return how.kind == "local"

    def _at_once(
        self, part: Batch, targets: Targets, objective: Objective, temperature: float
    ) -> tuple[Tensor, list[Mapping[str, Any]], Tensor]:
        """`_loss` of a micro-batch through `fused_policy_loss`, in its first step checked against the scope that was
        declared."""

        def loss_of(stats: TokenStats, _: Any) -> tuple[Tensor, list[Mapping[str, Any]]]:
            n = len(part.ids)
            logp = targets.spread(stats.logp, n)
            entropy = None if stats.entropy is None else targets.spread(stats.entropy, n)
            return divided(objective(TokenStats(logp=logp, entropy=entropy), part), part)

        head = Head(weight=head_weight(self.model), temperature=temperature)
        verify = self.step_count == 0
        loss, metrics, stats = fused_policy_loss(
            targets.before, head, targets.ids, loss_of, scope="token", elements=self.logits, verify=verify
        )
        return loss, metrics, stats.logp.isnan().sum()

    def _collect(self) -> None:
        """Move the gradients of half-precision weights to their master copies."""
        for p, m in zip(self.weights, self.master, strict=True):
            if m is not p and p.grad is not None:
                m.grad = p.grad.float() if m.grad is None else m.grad.add_(p.grad)
                p.grad = None

    @torch.no_grad()
    def _publish(self) -> None:
        """Round the master copies to the weights that the model runs with."""
        for p, m in zip(self.weights, self.master, strict=True):
            if m is not p:
                p.copy_(m)

    def publish(self, every: bool = False) -> None:
        """Copy the learned weights to `whole`, if that is not `model` itself; all processes call it. every: copy them
        in each process, not only in the first."""
        if self.world.mesh is not None:
            with talking(self.world):
                shard.publish(self.model, self.whole, keep=every or self.world.first)

    def let_go(self) -> None:
        """Free the memory of `whole`, if that is not `model` itself, in all processes but the first."""
        if self.world.mesh is not None and not self.world.first:
            shard.let_go(self.whole)

    def copied(self) -> list[Tensor]:
        """Copies of what is trained, as `restart` takes them."""
        return [m.detach().clone() for m in self.master]

    @torch.no_grad()
    def put(self, weights: Sequence[Tensor]) -> None:
        """Put trained weights (`copied`) in the place of the present ones; gradients and optimizers are left as they
        are."""
        for m, w in zip(self.master, weights, strict=True):
            m.copy_(w)
        self._publish()

    @torch.no_grad()
    def restart(self, weights: Sequence[Tensor]) -> None:
        """Put trained weights (`copied`) in the place of the present ones, and forget the optimizers' moments; the
        schedule goes on."""
        self.put(weights)
        self.drop_gradients()
        for optimizer in self.optimizers:
            optimizer.state.clear()

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs, by reference: tensors and plain values, to be saved at once. Split
        tensors are left split, under the names that one process would give them."""
        if self.world.mesh is not None:
            return self._state_of_shares()
        copies = [m for p, m in zip(self.weights, self.master, strict=True) if m is not p]
        return {
            "step_count": self.step_count,
            "model": self.model.state_dict(),
            "master": copies,
            "optimizers": [o.state_dict() for o in self.optimizers],
            **({} if self.estimator is None else {"estimator": self.estimator.state()}),
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state` of a learner of the same model and settings."""
        self.step_count = state["step_count"]
        if self.estimator is not None:
            self.estimator.load_state(state["estimator"])
        if self.world.mesh is not None:
            return self._load_shares(state)
        self.model.load_state_dict(state["model"])
        for m, saved in zip(
            (m for p, m in zip(self.weights, self.master, strict=True) if m is not p), state["master"], strict=True
        ):
            m.copy_(saved)
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    @torch.no_grad()
    def _state_of_shares(self) -> dict[str, Any]:
        dtype = next(self.whole.parameters()).dtype
        shares = {id(w): p.to(dtype) for w, p in self._pairs()}
        return {
            "step_count": self.step_count,
            "model": {k: shares.get(id(v), v) for k, v in self.whole.state_dict(keep_vars=True).items()},
            "master": self.master if dtype.itemsize < 4 else [],
            "optimizers": [o.state_dict() for o in self.optimizers],
        }

    def _load_shares(self, state: Mapping[str, Any]) -> None:
        """`load_state`: each process takes its share of every tensor, and the first gathers the weights."""
        unread: dict[Path, dict[str, Tensor]] = {}

        def share(saved: Tensor | shard.Saved, of: Tensor) -> Tensor:
            if not isinstance(saved, shard.Saved):
                return shard.like(saved, of)
            return unread.setdefault(saved.folder, {}).setdefault(saved.name, torch.empty_like(of, dtype=saved.dtype))

        held = dict(self.whole.named_parameters(remove_duplicate=False))
        names = {id(w): name for name, w in held.items()}
        weights = [share(state["model"][names[id(w)]], p) for w, p in self._pairs()]
        masters = [share(saved, m) for saved, m in zip(state["master"], self.master, strict=bool(state["master"]))]
        optimizers = []
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            params = [p for group in optimizer.param_groups for p in group["params"]]
            shares = {
                i: {k: share(v, params[i]) if _is_of(v, params[i]) else v for k, v in kept.items()}
                for i, kept in saved["state"].items()
            }
            optimizers.append({**saved, "state": shares})
        with talking(self.world):
            for folder, tensors in unread.items():
                shard.read(folder, tensors)
        for (_, p), weight in zip(self._pairs(), weights, strict=True):
            p.copy_(weight)
        for m, master in zip(self.master, masters, strict=bool(masters)):
            m.copy_(master)
        for optimizer, saved in zip(self.optimizers, optimizers, strict=True):
            optimizer.load_state_dict(saved)
        self.whole.load_state_dict({k: v for k, v in state["model"].items() if k not in held}, strict=False)
        self.publish()

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each weight of `whole`, and the split one that is learned."""
        return zip(self.whole.parameters(), self.model.parameters(), strict=True)


def _is_of(saved: Any, weight: Tensor) -> bool:
    """Whether a tensor of an optimizer's state is laid out as a weight: a moment, and no count of steps."""
    return isinstance(saved, shard.Saved) or saved.shape == weight.shape


@contextmanager
def _fitting(part: Batch, allowed: int, gradient_checkpointing: bool) -> Iterator[None]:
    """Turns an out-of-memory error into one sentence that says what to make smaller."""
    try:
        yield
    except RuntimeError as e:
        if not isinstance(e, torch.OutOfMemoryError) and "allocate memory" not in str(
            e
        ):  # the second is torch's error on a CPU
            raise
        tokens, longest = len(part.ids), max(part.lengths)
        smaller = (
            f"tokens_per_microbatch (it is {allowed})"
            if tokens > longest
            else f"the length of rows (the longest has {longest} tokens)"
        )
        raise ValueError(
            f"a micro-batch of {tokens} tokens in {part.rows} rows does not fit into memory: lower {smaller}"
            + ("" if gradient_checkpointing else ", or set gradient_checkpointing")
        ) from e


def divided(terms: Iterable[Terms], batch: Batch) -> tuple[Tensor, list[Mapping[str, Any]]]:
    """The only division: each term's sum divided by the step's total that it names, added up; and the metrics of each
    term. Raises LookupError for a denominator that nothing counted."""
    loss, metrics = torch.zeros((), device=batch.ids.device), []
    for term in terms:
        if term.denominator not in batch.totals:
            known = ", ".join(sorted(batch.totals))
            raise LookupError(
                f"a loss declares the denominator {term.denominator!r}, which nothing counted; known: {known}"
            )
        loss = loss + term.values.sum() / max(batch.totals[term.denominator], 1.0)
        metrics.append(term.metrics)
    return loss, metrics


def _add(sums: dict[str, tuple[Tensor, Tensor]], metrics: Mapping[str, tuple[Tensor | float, Tensor | float]]) -> None:
    """Add a micro-batch's (sum, count) to those of the step; for a name that ends in `_max` the largest value is kept.
    Does not wait for the GPU."""
    for name, (s, n) in metrics.items():
        s, n = (torch.as_tensor(x).detach().double() for x in (s, n))
        if name in sums:
            a, b = sums[name]
            s, n = (torch.where(b > 0, torch.maximum(a, s), s), n) if name.endswith("_max") else (a + s, b + n)
        sums[name] = (s, n)


def nll(stats: TokenStats, batch: Batch) -> list[Terms]:
    """Next-token loss of demonstrations. `columns["loss_weight"]` [T], if given, weights tokens;
    `totals["loss_tokens"]` is their sum."""
    weight = batch.columns.get("loss_weight")
    values = -torch.where(batch.trainable, stats.logp, 0.0)
    count = batch.trainable.sum()
    metrics: Metrics = {"nll": (values.sum(), count)}
    if stats.entropy is not None:
        metrics["entropy"] = (torch.where(batch.trainable, stats.entropy, 0.0).sum(), count)
    if weight is None:
        return [Terms(values=values, denominator="tokens", metrics=metrics)]
    return [Terms(values=values * weight, denominator="loss_tokens", metrics=metrics)]


nll.scope = "token"  # type: ignore[attr-defined]
