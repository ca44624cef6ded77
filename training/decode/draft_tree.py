"""Trees of drafts: a small head drafts a tree of tokens, and the model checks all of it in one pass, exactly.

Hu et al. 2025, "Bridging Draft Policy Misalignment: Group Tree Optimization for Speculative Decoding" (GTO, arXiv
2509.22134); "FastGRPO: Accelerating Policy Optimization via Concurrency-aware Speculative Decoding and Online Draft
Learning" 2025 (arXiv 2509.21792). The head is that of `speculate`, the tree that of EAGLE-2: of each layer the top_k
likeliest tokens (by the product of the draft's chances) get top_k children each, `depth` layers; of all tokens the `nodes`
likeliest are kept.

The model reads the tree in one pass, a token attending to its own ancestors alone. At the root it draws x ~ p, as it
would without a tree; if x is a child the draw goes on there, in the same pass. So what is drawn is the model's own, by
construction, and with the same seed the same tokens whatever the tree is (but for rounding). Log-probs are the model's.
All tokens of the tree count.

Budget (FastGRPO): where B asks are answered, a pass of one of them reads clip(floor(c_peak / B), 1, nodes + 1) tokens, its
root included; at 1 nothing is drafted. c_peak: 0 sets no bound. words (FR-Spec, arXiv 2502.14856): drafts are of so many ids alone,
those that the lessons have most often, 0 for all; where the model is small, reading its whole head is most of a draft. online: after each call the head takes so many steps on the
features of the answers that were just drawn, which the passes have computed already: it follows a policy that moves.

GTO. L_i = sum_j prod_{k <= j} T(token_k), T the model: the tokens of branch i that are expected to be accepted.

    r = (1 / eta) log sum_i exp(eta L_i)        R = r(tree of the head) - r(tree of the head as it began)
    A = (R - mean R) / (std R + delta) over `group` neighbouring prefixes of an answer
    s = exp((log M(S) - log M0(S)) / |S|), S the branch of highest L      -mean min(s A, clip(s, 1 - clip, 1 + clip) A)

omega times this is added to the loss on tokens and features, for `gto` steps behind the `steps` without it; omega: 0 takes
as many steps on tokens and features alone, the control. r is less log of the branches' number, so that trees with unlike
numbers compare. Leaves out features of several layers (EAGLE-3), and batches: answers are drawn one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from synth.types import Sampling, seed_for
from training.decode import Ask, Decoded, Engine, Example
from training.decode._drafts import Answer, Draft, Learned, chances, common, drafting, drawn, near, some, vocabulary
from training.model.kv_cache import CachedRows
from training.model.model import hidden_states


@dataclass(kw_only=True)
class Head:
    """A draft head that may go on learning. net: the head; embedding, head [V, d]: the model's; few: the ids that are drafted, None
    for all; loss: of the last step; reward: mean of R over the last group of GTO, 0 without; vocabulary: of the model's
    tokenizer."""

    net: Draft
    optimizer: torch.optim.Optimizer
    embedding: Tensor
    head: Tensor
    chance: torch.Generator
    vocabulary: dict[str, int] | None
    few: Tensor | None = None
    loss: float = 0.0
    reward: float = 0.0

    @cached_property
    def weight(self) -> Tensor:
        """The rows of the model's head that drafts may be of."""
        return (self.head if self.few is None else self.head[self.few]).float()

    def next(self, feature: Tensor, token: Tensor) -> Tensor:
        """Features [n, d] and tokens [n] behind them -> the next features [n, d]."""
        return self.net(feature.float(), self.embedding[token].float())

    def near(self, before: Tensor, token: Tensor, after: Tensor) -> Tensor:
        """The loss on features and tokens: before [n, d], token [n] -> after [n, d]."""
        return near(self.net, before, self.embedding[token].float(), after, self.weight)

    def step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.loss = float(loss.detach())


@dataclass(kw_only=True)
class Tree:
    """Drafted tokens: ids, the parent of each (-1: the root), and the log of the draft's chance from the root on."""

    ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)

    def leaves(self) -> list[list[int]]:
        """The branches, each from the root's child down, as indices."""
        out = []
        for i in sorted(set(range(len(self.ids))) - set(self.parents)):
            branch = [i]
            while self.parents[branch[-1]] >= 0:
                branch.append(self.parents[branch[-1]])
            out.append(branch[::-1])
        return out


def draft_tree(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    depth: int = 6,
    top_k: int = 4,
    nodes: int = 16,
    c_peak: int = 0,
    words: int = 0,
    online: int = 0,
    steps: int = 200,
    gto: int = 0,
    omega: float = 0.1,
    eta: float = 1.0,
    group: int = 8,
    clip: float = 0.2,
    lr: float = 3e-3,
    temperature: float | None = None,
    seed: int = 0,
) -> list[Decoded]:
    if min(depth, top_k, nodes) < 1:
        raise ValueError(f"depth {depth}, top_k {top_k}, nodes {nodes}: a tree of drafts has 1 or more of each")
    sampling = drafting(engine, fitted, temperature, "draft_tree")
    engine.sampler.sync()
    head = replace(fitted, embedding=engine.embedding(), head=engine.read_out()[1])  # the policy may have moved
    size = budget(c_peak, len(asks), nodes)
    done, seen = [], []
    for ask in asks:
        decoded, features = _answered(engine, ask, head, (depth, top_k, size), sampling)
        done.append(decoded)
        seen.append((features, decoded.segment.ids))
    if online:
        before = torch.cat([f[:-1] for f, _ in seen])
        after = torch.cat([f[1:] for f, _ in seen])
        token = torch.from_numpy(np.concatenate([ids[: len(f) - 1] for f, ids in seen])).to(before.device)
        with torch.inference_mode(False), torch.enable_grad():
            for _ in range(online if len(before) else 0):
                a, x, b = some((before, token, after), head.chance)
                head.step(head.near(a.clone(), x, b.clone()))
        fitted.loss = head.loss
    return done


def budget(c_peak: int, rows: int, nodes: int) -> int:
    """Drafted tokens that a pass of one row may read where `rows` are answered at a time; c_peak 0: all of `nodes`."""
    return nodes if not c_peak else int(np.clip(c_peak // max(rows, 1), 1, nodes + 1)) - 1


@torch.no_grad()
def drafted(head: Head, feature: Tensor, token: int, depth: int, top_k: int, nodes: int, sampling: Sampling) -> Tree:
    """The tree of at most `nodes` tokens behind a token whose predecessors' last feature is `feature` [d]."""
    whole, layer = Tree(), [(-1, 0.0)]
    features, tokens = feature[None].float(), torch.tensor([token], device=feature.device)
    if nodes < 1:
        return whole
    for _ in range(depth):
        features = head.next(features, tokens)
        z = (features @ head.weight.T).double()
        if sampling.temperature not in (0, 1):
            z = z / sampling.temperature
        best = log_softmax(z, 1).topk(min(top_k, z.shape[1]), 1)
        ids = best.indices if head.few is None else head.few[best.indices]
        several = [
            (logp + above, token, parent, row)
            for row, (parent, above) in enumerate(layer)
            for logp, token in zip(best.values[row].tolist(), ids[row].tolist(), strict=True)
        ]
        few = sorted(several, key=lambda x: (-x[0], x[3], x[1]))
        layer, rows = [], []
        for place, (logp, token, parent, row) in enumerate(few):
            whole.ids.append(token)
            whole.parents.append(parent)
            whole.logp.append(logp)
            if place < top_k:
                layer.append((len(whole.ids) - 1, logp))
                rows.append(row)
        features = features[rows]
        tokens = torch.tensor([whole.ids[i] for i, _ in layer], device=feature.device)
    # A child is at most as likely as its parent and comes behind it, so what is kept is a tree.
    kept = sorted(sorted(range(len(whole.ids)), key=lambda i: (-whole.logp[i], i))[:nodes])
    place = {i: j for j, i in enumerate(kept)} | {-1: -1}
    return Tree(
        ids=[whole.ids[i] for i in kept],
        parents=[place[whole.parents[i]] for i in kept],
        logp=[whole.logp[i] for i in kept],
    )


@torch.inference_mode()
def _answered(
    engine: Engine, ask: Ask, head: Head, shape: tuple[int, int, int], sampling: Sampling
) -> tuple[Decoded, Tensor]:
    """The answer, and the features [m, d] from which its first m tokens were drawn."""
    answer = Answer.of(engine, ask, sampling, head.head)
    account, most, (depth, top_k, nodes) = answer.account, answer.most, shape
    rng = np.random.default_rng(seed_for(ask.seed, "draft tree"))
    features: list[Tensor] = []
    sent = 0

    def take(feature: Tensor) -> bool:
        """Draw the token behind a feature [d]; whether the turn goes on."""
        features.append(feature)
        p = answer.chances(feature[None])[0]
        return answer.take(drawn(p, sampling, rng), p)

    on = take(answer.read(ask.prompt)[-1])
    while on and account.left >= 1:
        # Room for the whole answer and its last token comes before drafts.
        rest, token = most - len(answer.ids), answer.ids[-1]
        few = int(max(0, min(nodes, account.left - 1 - rest, (rest - 1) * top_k)))
        tree = drafted(head, features[-1], token, min(depth, max(rest - 1, 1)), top_k, few, sampling)
        out = answer.read([token, *tree.ids], np.array([-1, *(p + 1 for p in tree.parents)]))
        answer.passes, sent, path = answer.passes + 1, sent + len(tree.ids), [0]
        while on := take(out[path[-1]]):
            new = answer.ids[-1]
            children = [i + 1 for i, p in enumerate(tree.parents) if p + 1 == path[-1] and tree.ids[i] == new]
            if not children:
                break
            path.append(children[0])
        answer.cache.follow(path)
    return answer.decoded(f"{sent} drafts read", nodes), torch.stack(features).float()


def fit(
    engine: Engine,
    pairs: Sequence[Example],
    *,
    depth: int = 6,
    top_k: int = 4,
    nodes: int = 16,
    c_peak: int = 0,
    words: int = 0,
    online: int = 0,
    steps: int = 200,
    gto: int = 0,
    omega: float = 0.1,
    eta: float = 1.0,
    group: int = 8,
    clip: float = 0.2,
    lr: float = 3e-3,
    temperature: float | None = None,
    seed: int = 0,
) -> Head:
    """The draft head, trained on the model's features of the chosen answers, and by the reward of its trees for `gto`
    steps."""
    weight, learned = engine.read_out()[1], Learned.of(engine, pairs)
    rows, features = learned.rows, learned.features
    net = Draft(weight.shape[1], seed_for(seed, "draft")).to(weight.device)
    head = Head(
        net=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=lr),
        embedding=engine.embedding(),
        head=weight,
        chance=torch.Generator().manual_seed(seed_for(seed, "rows")),
        vocabulary=vocabulary(engine),
        few=common(learned.token, words, len(weight)),
    )
    for _ in range(steps):
        head.step(head.near(*learned.some(head.chance)))
    begun = replace(head, net=Draft(weight.shape[1], 0).to(weight.device))
    begun.net.load_state_dict(net.state_dict())
    sampling = engine.sampling if temperature is None else replace(engine.sampling, temperature=temperature)
    rng = np.random.default_rng(seed_for(seed, "gto"))
    for _ in range(gto):
        loss = head.near(*learned.some(head.chance))
        if omega:
            i = int(rng.integers(len(rows)))
            first = int(rng.integers(1, max(len(rows[i]) - group, 1) + 1))
            ends = range(first, min(first + group, len(rows[i])))
            loss = loss + omega * _gto(
                engine, (head, begun), rows[i], features[i], ends, (depth, top_k, nodes), sampling, (eta, clip)
            )
        head.step(loss)
    return head


def _gto(
    engine: Engine,
    heads: tuple[Head, Head],
    row: np.ndarray,
    features: Tensor,
    ends: Sequence[int],
    shape: tuple[int, int, int],
    sampling: Sampling,
    knobs: tuple[float, float],
) -> Tensor:
    """The policy loss of a group: trees behind row[: end + 1] for each of `ends`, of the head and of the one it began as."""
    (head, begun), (eta, clip) = heads, knobs
    device = head.head.device
    cache = CachedRows(1, device)
    rewards, ratios = [], []
    with torch.no_grad():
        start = torch.as_tensor(row[: ends[-1]], device=device)[None]
        hidden_states(engine.sampler.model, start, cache.begin(ends[-1]), cache)
        cache.advance()
    for end in reversed(ends):  # a tree overwrites what is behind its prefix, which shorter prefixes do not need
        cache.held[0] = end
        cache.window(0, 1)
        both, best = [], []
        for one in (head, begun):
            tree = drafted(one, features[end - 1], int(row[end]), *shape, sampling)
            branches = tree.leaves()
            lengths = expected(engine, cache, int(row[end]), tree, branches, sampling)
            both.append(tree_reward(lengths, eta) - float(np.log(len(lengths))) / eta)
            best.append([tree.ids[i] for i in branches[int(np.argmax(lengths))]])
        rewards.append(both[0] - both[1])
        with torch.no_grad():
            old = _said(begun, features[end - 1], int(row[end]), best[0], sampling)
        ratios.append(((_said(head, features[end - 1], int(row[end]), best[0], sampling) - old) / len(best[0])).exp())
    head.reward = float(np.mean(rewards))
    return policy_loss(torch.stack(ratios), torch.tensor(rewards, device=device), clip)


def tree_reward(lengths: Sequence[float], eta: float) -> float:
    """(1 / eta) log sum_i exp(eta L_i)."""
    return float(torch.logsumexp(eta * torch.tensor(lengths, dtype=torch.float64), 0)) / eta


def policy_loss(ratios: Tensor, rewards: Tensor, clip: float, delta: float = 1e-6) -> Tensor:
    """-mean min(s A, clip(s) A) of ratios s [m] with A = (R - mean) / (std + delta) of rewards R [m]."""
    a = ((rewards - rewards.mean()) / (rewards.std(correction=0) + delta)).to(ratios)
    return -torch.minimum(ratios * a, ratios.clamp(1 - clip, 1 + clip) * a).mean()


@torch.no_grad()
def expected(
    engine: Engine, cache: CachedRows, token: int, tree: Tree, branches: Sequence[Sequence[int]], sampling: Sampling
) -> list[float]:
    """L of each branch: the tokens of it that the model is expected to accept, behind what the cache holds and a token.
    The cache holds the same as before."""
    held = int(cache.held[0])
    parents = np.array([-1, *(p + 1 for p in tree.parents)])
    ids = torch.tensor([[token, *tree.ids]], device=cache.device)
    out = hidden_states(engine.sampler.model, ids, cache.branch(parents), cache)[0]
    cache.held[0] = held
    cache.window(0, 1)
    p = torch.stack([chances(z, sampling) for z in engine.sampler.logits(out)])
    chance = [float(p[parent + 1, i]) for i, parent in zip(tree.ids, tree.parents, strict=True)]
    return [float(np.cumprod([chance[i] for i in branch]).sum()) for branch in branches]


def _said(head: Head, feature: Tensor, token: int, ids: Sequence[int], sampling: Sampling) -> Tensor:
    """Log of the draft's chance of these tokens in a row."""
    total, at = torch.zeros((), device=feature.device), feature[None]
    for new in ids:
        at = head.next(at, torch.tensor([token], device=feature.device))
        z = at @ head.weight.T
        place = new if head.few is None else int(torch.searchsorted(head.few, new))
        total = total + log_softmax(z / (sampling.temperature or 1), 1)[0, place]
        token = new
    return total
