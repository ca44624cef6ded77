"""Grouped knobs: each group is one frozen class, one argument of a stage and one mapping in a recipe.

A stage takes `optimizer: Optimizer = Optimizer(lr=1e-3)`; recipes, profiles and `set:` write `optimizer: {lr: 1e-4}`,
and fields that they leave out keep their values. `plan` reads these classes by `ast`, as it reads signatures: defaults
are literals, and a field without a default gets one in the stage's signature. Every field has a line in the section
`Args` of its class, which the documentation, `espalier show`, the JSON schemas and error messages show. A group never
contains another group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from synth import types
from tasks.planning.pieces import Piece


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """The optimizer and the schedule of its learning rate.

    Args:
        kind: adamw; muon for matrices and AdamW for the rest; or sgd, plain steps at most lr times max_grad_norm long
        lr: learning rate of AdamW at its highest
        matrix_lr: learning rate of Muon for matrices; read where the kind is muon
        warmup: steps over which the learning rate rises from 0
        decay: how the learning rate falls after the warmup: linear, cosine or constant
        weight_decay: decoupled weight decay of matrices
        max_grad_norm: gradients with a larger norm are scaled down to it
    """

    kind: Literal["adamw", "muon", "sgd"] = "adamw"
    lr: float
    matrix_lr: float = 0.01
    warmup: int = 10
    decay: Literal["linear", "cosine", "constant"] = "linear"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the model's turns are sampled, and how many passages a search shows.

    Args:
        temperature: logits are divided by it before a token is drawn; 1 samples from the model's own distribution
        max_turn_tokens: most tokens of one turn of the model
        search_top_k: passages that a search shows
        search_embeddings: rank passages by BM25 and these embeddings: `static`, or the folder of a sentence-embedding
            model; empty for BM25 alone
        search_follow: also find the pages that the query and so many of the best passages name; 0 for none
    """

    temperature: float = 1.0
    max_turn_tokens: int = 48
    search_top_k: int = 3
    search_embeddings: str = ""
    search_follow: int = 0

    def tool(self) -> dict[str, Any]:
        """What makes the search tool (`tasks.knowledge.knowledge.search`)."""
        return {"k": self.search_top_k, "embeddings": self.search_embeddings, "follow": self.search_follow}

    def turn(self) -> types.Sampling:
        """The settings that a sampler reads, once for each turn."""
        return types.Sampling(temperature=self.temperature, max_tokens=self.max_turn_tokens)


@dataclass(frozen=True, kw_only=True)
class RolloutSampling(Sampling):
    """How whole conversations are sampled.

    Args:
        max_tokens: most tokens of a conversation
    """

    max_tokens: int = 512


@dataclass(frozen=True, kw_only=True)
class EvaluationSampling(RolloutSampling):
    """How conversations are sampled for evaluation.

    Args:
        top_p: smallest share of probability that is sampled from (1: all)
    """

    top_p: float = 1.0

    def turn(self) -> types.Sampling:
        return replace(super().turn(), top_p=self.top_p)


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """How much of one kind a cell (a split and a depth) of fuzzy-tree questions holds. A share is a wish: where the
    knowledge base has nothing else to ask, questions over it fill the rest.

    Args:
        root_attribute: most questions about one attribute of one root, in all cells together; 0 means no limit
        relation: largest share of the questions with a link by one relation; 1 means no limit, as in the next two
        shape: largest share of the questions whose trees have one shape: the kinds of the clues, whatever relations
        answer: largest share of the questions with answers of one kind: numbers, years, dates, strings, or one type of
            entity
    """

    root_attribute: int = 1
    relation: float = 0.4
    shape: float = 0.5
    answer: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Critic:
    """A value model that also starts from the SFT model and is trained alongside the policy.

    Args:
        loss: its loss; none trains no critic
        lr: its learning rate; the rest of its optimizer is the policy's, with AdamW
        lam: lambda of its returns
        passes: optimizer steps that it makes with the rollouts of a step
        warmup: first steps in which it learns and the policy waits
    """

    loss: Piece("value_loss") = None  # type: ignore[valid-type]
    lr: float = 1e-3
    lam: float = 1.0
    passes: int = 1
    warmup: int = 0


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine that samples, and how much it does at a time.

    Args:
        name: torch, vllm (in this process, or in `samplers` servers), or the URLs of vLLM servers on this machine,
            separated by commas (docs/engines.md)
        memory: GiB for keys and values of the engine
        concurrent_batches: batches of conversations that are in flight at a time, for tools that take their time
        tool_calls: environments of a batch that are at work at a time
    """

    name: str = "torch"
    memory: float = 1.0
    concurrent_batches: int = 1
    tool_calls: int = 1
