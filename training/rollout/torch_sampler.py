"""The in-process sampler: the learner's own weights, a static key/value cache, one prefill for equal prompts,
continuous batching.

Log-probs are those of the distribution really sampled from (after temperature, top-k, top-p and min-p, or among the
choices, renormalised); greedy turns (temperature 0) carry those of the model at temperature 1. Each sample draws from
its own random stream, keyed by its seed, so that it does not depend on the rest of its batch (up to rounding: a matrix
product of another size may differ in the last bit).

Rows may have their residual stream changed while they are sampled (`edits`, training/model/residual.py): the model's
own layers are then used, and every row stays in the batch until the last has ended, so that a change of one row changes
no bit of another in that turn. What prompts have in common before the first changed position is read once. `Session.path` says which implementation was used.

If the model holds several policies as adapters (`policies`), each row goes through its own, in one batch with the
others.

At most `slots` conversations are active at a time; when a turn ends, the next waiting conversation takes its slot. The
host reads the drawn tokens once per step; only the few rows that end are handled row by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import Sampling
from training.model import lora, products
from training.model.router import replay_of
from training.model.kv_cache import CachedRows
from training.model.model import head_weight, hidden_states
from training.model.native.cached import CachedLayers
from training.model.native.decode import Drawn, TurnDecoder
from training.model.native.layers import usable
from training.model.products import blocks
from training.model.render import Renderer
from training.model.residual import Edit, check_edits, edited, untouched
from training.rollout.ending import ChoiceTree, Ending
from training.rollout import graphs
from training.types import Segment, Stop

SLOTS = {
    "cpu": 512,
    "cuda": 1024,
}  # a decoding step of a small model on a CPU is limited by the number of operations, not by the number of rows
_PREFILL = 16384  # tokens of prompts in one pass
ALLOWED = 32  # ids that may follow one another where a turn is held to choices
_LOGITS = 1 << 18  # elements of logits processed together
_ROWS = 64  # and the rows for which a large head weight is read once
_FLOOR = -1e4


@dataclass
class TorchSampler:
    """`open` starts a session of conversations that grow turn by turn.

    version   of the weights; the code that changes them increments it
    renderer  decodes ids; needed for stop strings and choices only
    slots     active conversations at a time; 0: a default for the device
    graphs    on a GPU, whether steps are replayed from CUDA graphs
    """

    model: nn.Module
    end_id: int
    version: int = 0
    renderer: Renderer | None = None
    slots: int = 0
    graphs: bool = True
    cached: CachedLayers | None = field(default=None, init=False, repr=False)
    turns: TurnDecoder | None = field(default=None, init=False, repr=False)
    head: Tensor | None = field(default=None, init=False, repr=False)  # [V, d] if it is not a weight of the model
    _known: bool = field(default=False, init=False, repr=False)

    def open(
        self,
        prompts: Sequence[np.ndarray],
        seeds: Sequence[int],
        edits: Sequence[Edit | None] = (),
        policies: Sequence[str] = (),
    ) -> Session:
        """Start one conversation per prompt (ids [n]) with one seed each, with the current weights; equal prompts are
        prefilled once. edits: per conversation how its residual stream is changed, or None. policies: per conversation
        the name of its adapters (training/model/lora.py). Raises ValueError for a prompt without tokens, for an edit
        of a layer that does not exist, and for a vector of another model."""
        self.sync()
        return Session(self, prompts, seeds, edits, policies)

    def sync(self) -> None:
        """Read the model's weights again, if the sampler works with copies of them."""
        if not self._known:
            self.cached, self._known = CachedLayers.of(self.model), True
            self.turns = TurnDecoder.of(self.cached)
        elif self.cached is not None and usable(self.model):  # adapters may have been added since
            self.cached.refresh()
            if self.turns is not None:
                self.turns.refresh()
        else:
            self.cached = self.turns = None
        weight = head_weight(self.model)
        # float32 logits on a CPU, as in the learner: rounded to bfloat16 they would be 0.1 apart
        half = weight.is_cpu and weight.dtype == torch.bfloat16
        self.head = weight.detach().float() if half else None

    def logits(self, last: Tensor) -> Tensor:
        """Logits [n, V] of hidden states [n, d]."""
        head = head_weight(self.model) if self.head is None else self.head
        return products.forward(last.to(head.dtype), head)

    def weights(self) -> dict[str, Tensor]:
        """The weights that it samples with, under the names of the model's own parameters: copies if it works with
        copies."""
        return dict(self.model.named_parameters()) | (self.cached.named() if self.cached else {})

    @torch.inference_mode()
    def logp(self, prompt: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The log-probs [n] float32 at temperature 1 of the ids `said` [n], computed token by token as in sampling."""
        session, out = Session(self, [prompt], [0]), []
        for token in map(int, ids):
            out.append(torch.log_softmax(self.logits(session.last).float(), -1)[0, token])
            session.last = self.forward(
                torch.tensor([[token]], device=session.last.device), session.cache.begin(), session.cache
            )[:, 0]
            session.cache.advance()
        return torch.stack(out).cpu().numpy()

    def forward(self, ids: Tensor, position: Tensor, cache: CachedRows) -> Tensor:
        """ids, position [rows, n] -> hidden states [rows, n, d]."""
        if self.cached is not None:
            return self.cached(ids, position, cache)
        routers = replay_of(self.model)
        if routers is not None:
            routers.chosen, routers.recording = None, True
        try:
            return hidden_states(self.model, ids, position, cache)
        finally:
            if routers is not None:
                routers.recording = False


class Session:
    """Running conversations. `generate` and `observe` alternate; rows are identified by their index in the prompts
    given at the start."""

    holds = True  # turns to the choices of each row

    def __init__(
        self,
        sampler: TorchSampler,
        prompts: Sequence[np.ndarray],
        seeds: Sequence[int],
        edits: Sequence[Edit | None] = (),
        policies: Sequence[str] = (),
    ) -> None:
        self.sampler, self.seeds, self.policies = sampler, list(seeds), list(policies)
        self.edits = list(edits) if any(e is not None for e in edits) else []
        if not all(len(p) for p in prompts):
            raise ValueError(f"prompt {[len(p) for p in prompts].index(0)} has no tokens: a model needs at least one")
        check_edits(sampler.model, self.edits)
        sampler.model.eval()
        self.turns = np.zeros(len(prompts), dtype=np.int64)  # [rows] that each has had
        self.graph: graphs.StepGraph | None = None
        self.rows = list(range(len(prompts)))  # conversations still alive
        self.lies = np.arange(len(prompts))  # [rows] slot of each
        self.row_in = np.arange(len(prompts))  # [slots] row in each
        plain = [untouched(e, len(p)) for e, p in zip(self.edits, prompts, strict=True)] if self.edits else []
        apart = bool(plain) and min(plain) == 0
        shared = bool(plain) and not apart
        heads = [p[:n] for p, n in zip(prompts, plain, strict=True)] if shared else prompts
        first, which = _alike(heads, apart, self.policies)
        device = head_weight(sampler.model).device
        self.routers = replay_of(sampler.model)
        self.seen = np.array([len(p) for p in prompts])  # [rows] tokens of each
        self.experts: Tensor | None = None  # [rows, tokens, layers, k] that routers chose, if they are replayed
        with torch.inference_mode():
            cache = CachedRows(len(first), device)
            if self.policies:  # at this point the slots hold prompts, and each prompt is read by one policy
                self.row_in = first
            if shared:
                self.edits = [None] * len(prompts)  # nothing is changed here, and the model's own layers read it
            last = self._extend(cache, [heads[i] for i in first])
            self.row_in = np.arange(len(prompts))
            self.cache = cache.share(which)
            # [slots, d] hidden state after each row's last token
            self.last = last.index_select(0, torch.from_numpy(which).to(device))
            if shared:
                self.edits = list(edits)
                self.last = self._extend(self.cache, [p[n:] for p, n in zip(prompts, plain, strict=True)])
            if self.experts is not None:
                self.experts = self.experts[torch.from_numpy(which).to(device)]

    @property
    def joins(self) -> bool:
        """Whether more conversations may join."""
        return not self.edits and not self.policies and self.routers is None

    @torch.inference_mode()
    def join(self, keep: Sequence[int], prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> list[int]:
        """Add more conversations to those that were told something since the last turn; returns their indices. keep:
        the conversations that continue; the others are dropped. The tokens of a conversation do not depend on the ones
        that join."""
        assert self.joins, "rows that are changed, of several policies, or whose experts are kept, begin together"
        first, which = _alike(prompts, False, ())
        device, places = self.cache.device, list(range(len(self.seeds), len(self.seeds) + len(prompts)))
        fresh = CachedRows(len(first), device)
        last = self._extend(fresh, [prompts[i] for i in first])
        prefix = fresh.share(which).prefix
        assert prefix is not None
        slots = self.lies[np.asarray(keep, dtype=np.int64)]
        self.cache.join(prefix, which, slots)
        self.last = torch.cat([self.last[torch.from_numpy(slots)], last[torch.from_numpy(which)]])
        self.row_in = np.array([*keep, *places], dtype=np.int64)
        self.lies = np.full(len(self.seeds) + len(prompts), -1)
        self.lies[self.row_in] = np.arange(len(self.row_in))
        self.seeds += list(seeds)
        self.turns = np.concatenate([self.turns, np.zeros(len(prompts), dtype=np.int64)])
        self.seen = np.concatenate([self.seen, [len(p) for p in prompts]])
        self.rows, self.graph = [*self.rows, *places], None
        self.cache.window(0, len(self.row_in))
        return places

    @property
    def path(self) -> str:
        """Which implementation samples turns: "compiled turns" (a whole turn in one call), "compiled layers" or "own
        layers" (the model's own forward, the only one that supports edits)."""
        if self.edits or self.sampler.cached is None:
            return "own layers"
        return "compiled layers" if self.sampler.turns is None else "compiled turns"

    def _forward(self, ids: Tensor, position: Tensor, cache: CachedRows) -> Tensor:
        """ids, position [rows, n] of the window's rows -> hidden states [rows, n, d]."""
        if self.policies:
            with lora.by_row(self.sampler.model, [self.policies[r] for r in self.row_in[cache.lo : cache.hi]]):
                return hidden_states(self.sampler.model, ids, position, cache)
        if not self.edits:
            hidden = self.sampler.forward(ids, position, cache)
            if self.routers is not None:
                self._note(self.routers.seen(), position, cache)
            return hidden
        mine = [self.edits[r] for r in self.row_in[cache.lo : cache.hi]]
        with edited(self.sampler.model, mine, position):
            return hidden_states(self.sampler.model, ids, position, cache)

    def _note(self, seen: Tensor, position: Tensor, cache: CachedRows) -> None:
        """Record the experts [rows n, layers, k] of the window's rows. Entries after a row's last token are overwritten
        by later tokens, or never read."""
        top = int(position.max()) + 1
        if self.experts is None or self.experts.shape[1] < top:
            wider = seen.new_full((len(self.row_in), 2 * top, *seen.shape[1:]), -1)
            if self.experts is not None:
                wider[:, : self.experts.shape[1]] = self.experts
            self.experts = wider
        rows = torch.from_numpy(self.row_in[cache.lo : cache.hi]).to(position.device)
        self.experts[rows[:, None], position] = seen.view(*position.shape, *seen.shape[1:])

    def _turned(self, turn: _Turn) -> list[Segment]:
        """Store the tokens of each row after a turn is over."""
        self.turns[self.rows] += 1
        self.seen += turn.length
        segments = turn.segments(self.rows)
        if self.experts is None:
            return segments
        known = self.experts.cpu().numpy()
        return [replace(s, experts=known[r, : self.seen[r]].copy()) for r, s in zip(self.rows, segments, strict=True)]

    def _extend(self, cache: CachedRows, new: Sequence[np.ndarray]) -> Tensor:
        """Feed the first rows of a cache their new ids [n], some rows at a time; returns the hidden state [rows, d]
        after the last one."""
        if self.sampler.turns is not None and self.sampler.turns.reads and not self.edits:
            last = torch.empty(len(new), head_weight(self.sampler.model).shape[1])
            self.sampler.turns.read(cache, new, last)
            cache.window(0, len(new))
            return last
        fresh = np.array([len(x) for x in new])
        cache.window(0, len(new))
        cache.reserve(int((cache.held[: len(new)] + fresh).max()))
        step, out = max(1, _PREFILL // int(fresh.max())), []
        for lo in range(0, len(new), step):
            part = fresh[lo : lo + step]
            ids = np.zeros((len(part), int(part.max())), dtype=np.int64)
            for i, x in enumerate(new[lo : lo + step]):
                ids[i, : len(x)] = x
            cache.window(lo, lo + len(part))
            hidden = self._forward(torch.from_numpy(ids).to(cache.device), cache.begin(part), cache)
            cache.advance()
            out.append(hidden[torch.arange(len(part)), torch.from_numpy(part - 1)])
        return torch.cat(out)

    def observe(self, rows: Sequence[int], new: Sequence[np.ndarray]) -> None:
        """Append the environment's text to each of the conversations `rows`; only these have a turn next. The others
        stay as they are, and may continue later."""
        self.rows = list(rows)
        if not self.rows:
            return
        with torch.inference_mode():
            self._front(rows)
            told = dict(zip(rows, new, strict=True))
            self.seen[list(rows)] += [len(x) for x in new]
            self.last[: len(rows)] = self._extend(self.cache, [told[r] for r in self.row_in[: len(rows)]])

    def _step(self, token: Tensor) -> Tensor:
        """Feed the window's rows one id each [rows]; returns the hidden states [rows, d] after them."""
        cache, sampler = self.cache, self.sampler
        if self.graph is not None and self.graph.fits:
            return self.graph(token)
        columns = 0
        if sampler.graphs and not self.edits and self.routers is None and graphs.can_record(cache.device):
            cache.fix(0)
            columns = (cache.depth // graphs.COLUMNS + 1) * graphs.COLUMNS
            cache.reserve(columns)
        hidden = self._forward(token[:, None], cache.begin(), cache)[:, 0]
        cache.advance()
        if cache.depth < columns:
            self.graph = graphs.capture(sampler.forward, cache, columns)
            sampler.graphs = self.graph is not None
        return hidden

    def _front(self, rows: Sequence[int]) -> None:
        """Move `rows` to the first slots, with as few moves as possible."""
        at = np.sort(self.lies[np.asarray(rows, dtype=np.int64)])
        free = np.ones(len(rows), dtype=bool)
        free[at[at < len(rows)]] = False
        self._swap(at[at >= len(rows)], np.flatnonzero(free))

    def _swap(self, a: np.ndarray, b: np.ndarray) -> None:
        """Exchange the rows of the slots a and b."""
        if len(a):
            self.cache.swap(a, b)
            one, two = np.concatenate([a, b]), np.concatenate([b, a])
            self.row_in[one] = self.row_in[two]
            self.lies[self.row_in[one]] = one
            self.last[torch.from_numpy(one)] = self.last[torch.from_numpy(two)]

    @torch.inference_mode()
    def generate(self, sampling: Sampling, choices: Sequence[Sequence[np.ndarray]] = ()) -> list[Segment]:
        """Sample the next turn of every alive conversation: at most `max_tokens` ids, ending with the end-of-turn id
        unless cut, or stopped by another id or by a string. choices: for each of them the turns, as ids, of which this one
        must be one (none: any turn); what could be drawn is recorded, as `allowed` of the segment. Raises ValueError for
        impossible choices and stops."""
        n, limit, sampler, cache = len(self.rows), sampling.max_tokens, self.sampler, self.cache
        turn = _Turn(self, sampling, choices)
        self._front(self.rows)
        if sampler.turns is not None and turn.plain and not self.edits:
            return self._compiled(sampler.turns, turn)
        cache.window(0, n)
        cache.reserve(cache.depth + min(limit, 64))
        before = {r: int(cache.held[self.lies[r]]) for r in self.rows}
        lo, hi = 0, min(n, sampler.slots or SLOTS.get(cache.device.type, SLOTS["cpu"]))
        patience = 2 if graphs.can_record(cache.device) else 8  # of new rows a new graph is captured
        if self.edits:  # no row leaves before the last has ended: the shapes of products do not tell who ended when
            hi, patience = n, 1
        cache.window(lo, hi)
        while True:
            rows = self.row_in[lo:hi]
            token = turn.sample(self.last[lo:hi], rows)
            self.last[lo:hi] = self._step(token)
            over = turn.over[rows]
            gone = int(over.sum())
            # a few ended rows may stay, because moving rows costs time too
            if gone * patience < hi - lo and gone + lo < n:
                continue
            for r in rows[over]:
                cache.held[self.lies[r]] = before[r] + turn.length[r]
            # Ended rows are moved to the window's front, which then moves past them; waiting rows enter at its other
            # end.
            front = over[:gone]
            self._swap(lo + np.flatnonzero(~front), lo + gone + np.flatnonzero(over[gone:]))
            lo, hi = lo + gone, min(n, hi + gone)
            cache.window(lo, hi)
            if lo == n:
                return self._turned(turn)

    def _compiled(self, turns: TurnDecoder, turn: _Turn) -> list[Segment]:
        """`generate` by compiled code, which returns for the rows that may have ended."""
        slots, drawn = np.arange(len(self.rows)), turn.drawn()
        while len(slots):
            turns(self.cache, slots, self.row_in[slots], self.last, drawn)
            rows = self.row_in[slots]
            turn.judge(
                rows[
                    turn.ending.may_end[turn.ids[rows, turn.length[rows] - 1]]
                    | (turn.length[rows] == turn.sampling.max_tokens)
                ]
            )
            slots = slots[~turn.over[rows]]
        return self._turned(turn)


class _Turn:
    """One turn of all rows while it is sampled. Arrays are by row: `length` tokens so far, `over` whether it has ended,
    and the drawn tokens."""

    def __init__(self, session: Session, sampling: Sampling, choices: Sequence[Sequence[np.ndarray]] = ()) -> None:
        sampler, device, n, limit = session.sampler, session.cache.device, len(session.seeds), sampling.max_tokens
        self.sampling, self.version, self.logits = sampling, sampler.version, sampler.logits
        self.vocabulary = len(head_weight(sampler.model))
        self.ending = Ending.of(sampling, sampler.end_id, sampler.renderer, self.vocabulary)
        self.choices = None
        if sampling.choices and sampler.renderer is not None:  # `Ending.of` refuses choices without a renderer
            self.choices = ChoiceTree.of(sampling, sampler.renderer, device)
        self.node = torch.zeros(
            n, dtype=torch.long, device=device
        )  # the node of each row in the trees of choices; -1: any token
        self.allowed = None  # per row and token the ids that could be drawn, + 1; 0: no more, all 0: any
        if any(map(len, choices)):
            self._hold(session.rows, choices, n, device)
        # One uniform number per (sample, turn, position): a counter-based stream, so neighbours and batch order do not
        # matter.
        uniforms = np.zeros((n, limit))
        for r in session.rows:
            uniforms[r] = np.random.Generator(np.random.Philox(key=[session.seeds[r], int(session.turns[r])])).random(
                limit
            )
        self.uniforms = torch.from_numpy(uniforms).to(device).view(-1)
        self.length, self.over = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
        self.ids = np.zeros((n, limit + 1), dtype=np.int64)  # the last column receives draws after an end
        self.logp, self.entropy = (np.zeros((n, limit + 1), dtype=np.float32) for _ in range(2))
        self.why: dict[int, Stop] = {}

    def _hold(
        self, rows: Sequence[int], choices: Sequence[Sequence[np.ndarray]], n: int, device: torch.device | str
    ) -> None:
        """Rows [B] are held to their choices. Raises ValueError for one that does not fit into a turn, for two kinds of
        choices, and where more ids may follow than are recorded."""
        limit, lists, place = self.sampling.max_tokens, [], {}
        if self.choices is not None:
            raise ValueError("choices are given for the sampling and for single rows: leave out one of them")
        self.node = torch.full((n,), -1, dtype=torch.long, device=device)
        for r, mine in zip(rows, choices, strict=True):
            if not len(mine):
                continue
            if (longest := max(map(len, mine))) > limit:
                raise ValueError(
                    f"a choice and its end have {longest} tokens, more than max_tokens = {limit} of a turn: raise max_turn_tokens, or shorten it"
                )
            key = tuple(x.tobytes() for x in mine)
            if key not in place:
                place[key] = len(lists)
                lists.append(mine)
            self.node[r] = place[key]
        self.choices = ChoiceTree(lists, device)
        if (wide := self.choices.allowed.shape[1]) > ALLOWED:
            raise ValueError(
                f"{wide} tokens may follow one another in these choices, and {ALLOWED} are the most: offer fewer"
            )
        self.allowed = np.zeros((n, limit + 1, ALLOWED), dtype=np.int32)

    def sample(self, last: Tensor, rows: np.ndarray) -> Tensor:
        """The next ids [B] after the hidden states `last` [B, d] of `rows`; rows that end with them are marked as
        over."""
        limit = self.sampling.max_tokens
        at = np.where(self.over[rows], limit, self.length[rows])
        index = torch.from_numpy(rows * limit + np.minimum(at, limit - 1)).to(last.device)
        uniform = self.uniforms.index_select(0, index)
        node = self.node[torch.from_numpy(rows)]
        done = []
        in_cache = max(16, _LOGITS // self.vocabulary)
        for part in blocks(len(rows), max(_ROWS, in_cache)):
            logits = self.logits(last[part])
            if self.choices is None:
                done += [_draw(logits[few], self.sampling, uniform[part][few]) for few in blocks(len(logits), in_cache)]
            else:
                done.append(self._held(logits, node[part], uniform[part]))
        token, logp, entropy = (torch.cat(x) if len(done) > 1 else x[0] for x in zip(*done, strict=True))
        if self.choices is not None:
            self._recorded(node, rows, at)
            held = node >= 0
            ids, child = self.choices.step(node.clamp(min=0), token.clamp(max=self.choices.allowed.shape[1] - 1))
            self.node[torch.from_numpy(rows)] = torch.where(held, child, node)
            token = torch.where(held, ids, token)
        ids = token.cpu().numpy()
        self.ids[rows, at], self.logp[rows, at], self.entropy[rows, at] = ids, logp.cpu().numpy(), entropy.cpu().numpy()
        live = ~self.over[rows]
        self.length[rows] += live
        self.judge(rows[live & (self.ending.may_end[ids] | (at + 1 == limit))])
        return token

    def _held(self, logits: Tensor, node: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For logits [B, V] the draws [B], as places among the allowed ids where a row is held to choices, as ids where it is
        not; their log-probs and entropies [B]."""
        assert self.choices is not None
        held = node >= 0
        if bool(held.all()):
            return _draw(self.choices.cut(logits, node), self.sampling, uniform)
        free = _draw(logits, self.sampling, uniform)
        cut = _draw(self.choices.cut(logits, node.clamp(min=0)), self.sampling, uniform)
        token, logp, entropy = (torch.where(held, a, b) for a, b in zip(cut, free, strict=True))
        return token, logp, entropy

    def _recorded(self, node: Tensor, rows: np.ndarray, at: np.ndarray) -> None:
        """Notes what each of the rows could draw at its place."""
        if self.allowed is None or self.choices is None:
            return
        known = node.clamp(min=0)
        ids = torch.where(self.choices.there[known], self.choices.allowed[known] + 1, 0)
        ids = torch.where((node >= 0)[:, None], ids, 0).cpu().numpy()
        self.allowed[rows, at, : ids.shape[1]] = ids

    def judge(self, rows: np.ndarray) -> None:
        """Whether each of these rows, which may end at their last token, is over, and why."""
        for r in map(int, rows):
            k = int(self.length[r])
            why = self.ending.why(int(self.ids[r, k - 1]), self.ids[r, :k])
            if why or k == self.sampling.max_tokens:
                self.why[r], self.over[r] = why or "length", True

    @property
    def plain(self) -> bool:
        """Whether tokens are drawn from the whole distribution."""
        s = self.sampling
        return not (self.choices is not None or s.choices or s.top_k or s.top_p < 1 or s.min_p > 0)

    def drawn(self) -> Drawn:
        """The arrays that compiled code fills."""
        limit = self.sampling.max_tokens
        return Drawn(
            limit=limit,
            temperature=self.sampling.temperature,
            may_end=self.ending.may_end,
            uniforms=self.uniforms.view(-1, limit).numpy(),
            ids=self.ids,
            logp=self.logp,
            entropy=self.entropy,
            length=self.length,
        )

    def segments(self, rows: Sequence[int]) -> list[Segment]:
        """The segment of each row."""
        cut = [(r, int(self.length[r])) for r in rows]
        return [
            Segment(
                ids=self.ids[r, :k].copy(),
                role="model",
                logp=self.logp[r, :k].copy(),
                entropy=self.entropy[r, :k].copy(),
                stop=self.why[r],
                version=self.version,
                sampling=self.sampling,
                extras={} if self.allowed is None else {"allowed": self.allowed[r, :k].copy()},
            )
            for r, k in cut
        ]


def _alike(prompts: Sequence[np.ndarray], apart: bool, policies: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The first of each set of equal prompts that the same policy reads, and the set [rows] of each. apart: all are
    distinct, because some row is changed from its first token on."""
    unique: dict[Any, int] = {}
    keys = [(p.tobytes(), i if apart else 0, policies[i] if policies else "") for i, p in enumerate(prompts)]
    which = np.array([unique.setdefault(key, len(unique)) for key in keys])
    return np.unique(which, return_index=True)[1], which


def _draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """logits [B, V], uniform [B] float64 in [0, 1) -> ids, log-probs and entropies [B] of the truncated, renormalised
    distribution.

    By inverse CDF: the first token whose cumulative probability exceeds u times the total. Summed in float64: in
    float32 the tail of a large vocabulary vanishes, and u may round to 1, where a token of probability 0 would be
    drawn.
    """
    z = logits.float()
    if sampling.temperature not in (0, 1):
        z = z / sampling.temperature
    if sampling.temperature > 0:
        z = truncated(z, sampling)
    z = (z - z.amax(-1, keepdim=True)).clamp_min_(_FLOOR)  # exp of the floor is 0, and 0 x floor too
    p = z.exp()
    if sampling.temperature == 0:
        total, token = p.sum(-1), z.argmax(-1, keepdim=True)
    else:
        cdf = p.cumsum(-1, dtype=torch.float64)
        token = torch.searchsorted(cdf, uniform[:, None] * cdf[:, -1:], right=True)
        total = cdf[:, -1].float()
    log_total = total.log()
    return token.squeeze(-1), z.gather(-1, token).squeeze(-1) - log_total, log_total - torch.linalg.vecdot(p, z) / total


def truncated(z: Tensor, sampling: Sampling) -> Tensor:
    """Logits [B, V] at their temperature with -inf where top-k, top-p (of what top-k left) or min-p exclude a token."""
    if sampling.top_k and sampling.top_k < z.shape[-1]:
        z = z.masked_fill(z < z.topk(sampling.top_k, -1).values[:, -1:], -torch.inf)
    keep = z
    if sampling.top_p < 1:
        order = z.sort(-1, descending=True)
        p = torch.softmax(order.values, -1)
        drop = (p.cumsum(-1) - p) >= sampling.top_p  # the tokens before it already hold enough
        keep = z.masked_fill(torch.zeros_like(drop).scatter(-1, order.indices, drop), -torch.inf)
    if sampling.min_p > 0:
        keep = keep.masked_fill(z < z.amax(-1, keepdim=True) + math.log(sampling.min_p), -torch.inf)
    return keep
