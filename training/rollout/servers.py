"""Several vLLM servers with the same weights, as one `Engine`.

The router is here, in the process that asks: a conversation stays with the server that has its earlier turns in its
prefix cache, and a new one goes where the fewest are in flight (sticky and least loaded, as the router of prime-rl:
plain hashing fills one server while others wait). All servers read the weights from one folder. None is asked for a
turn before it has reported the version, and before its log-probs of a probe agree with those of the others and of the learner.

Several policies are adapters on the base that the servers were started with. Each has a folder, which is replaced where
its adapters have changed; servers load it under its name, and a request names the adapters that answer it. Their
log-probs of the probe have to agree with the learner's, because a base is never sent.

A server that does not answer is left out until the next weights: its turns are asked elsewhere, with the same seeds,
and since a turn is asked as ids, the other server goes on where it stopped. One that is back by then gets the weights
and its share. Only if no server answers is the engine lost.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import nn

from synth.types import Sampling
from training.learner.learner import score
from training.learner.pack import Row, pack
from training.model.lora import folded, use
from training.model.model import head_weight
from training.rollout.engine import Completion, EngineLost, WrongVersion
from training.rollout.publisher import Publisher
from training.rollout.vllm_engine import Server, all_known, room_for, wait, written

SLACK = 8  # conversations that a server may have more than the least loaded before a known prompt goes elsewhere
PROBE, APART = (1, 2, 3, 4), 0.02  # ids of the probe, and how many nats servers of one model may differ on it
SUPPORTED, AFTER = "0.32", "0.33"  # versions of vLLM: from the first on, below the second
SAID = 8  # tokens of the probe's answer that a server and the learner compare
ROUNDED = 0.25  # how many nats they may differ if the weights are not float32: two programs round each sum differently
T = TypeVar("T")


@dataclass(eq=False)
class Servers:
    """servers  at least one, of the same model, dtype and version of vLLM (`agree`)
    policies names of the adapters of several policies, if the model holds them (training/learner/policies.py)
    publisher how whole weights reach them; None: by disk
    pushed   bytes of the adapters that the last push wrote
    """

    elsewhere: ClassVar[bool] = True

    servers: Sequence[Server]
    policies: Sequence[str] = ()
    publisher: Publisher | None = None
    pushed: int = field(default=0, init=False)
    _pushes: int = field(default=0, init=False, repr=False)  # of adapters so far, of which each gets a name
    _held: dict[str, tuple[str, Path]] = field(default_factory=dict, init=False, repr=False)  # digest, folder of each
    _live: list[Server] = field(default_factory=list, init=False, repr=False)
    _home: dict[Any, Server] = field(default_factory=dict, init=False, repr=False)
    _flying: Counter[Server] = field(default_factory=Counter, init=False, repr=False)
    _one: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        for other in self.servers[1:]:
            other.run = self.servers[0].run

    def load(self, model: nn.Module, version: int) -> None:
        """Have all that answer read the weights, or the adapters that they do not have. Raises EngineLost if none does,
        ValueError if their log-probs differ, from each other or from the learner's."""
        up = self._each(Server.answers, self.servers)
        there = [s for s, answers in zip(self.servers, up, strict=True) if answers]
        for s in set(self.servers) - set(there):
            print(
                f"warning: the server {s.url} does not answer: it is left out until the next weights", file=sys.stderr
            )
        self._live = there
        if self.policies:
            self._swap(model, version)
        else:
            publisher = self.publisher or Publisher("disk", "cpu", self.servers[0].weights)
            publisher.publish(folded(model), version, there, self._each)
        self._home.clear()  # their prefix caches are empty
        if not self._live:
            raise EngineLost(f"none of the {len(self.servers)} servers took the weights")
        if self.policies:
            self._agrees(model, {policy: folder.name for policy, (_, folder) in self._held.items()})
        else:
            self._probe()
            self._agrees(model, {"": ""})

    def _swap(self, model: nn.Module, version: int) -> None:
        """Lay the adapters that have changed, and have the live servers keep those of now. Folders stay until others
        replace them: a server that has thrown adapters out of its memory reads them again."""
        place, self.pushed = self.servers[0].weights, 0
        for policy in self.policies:
            folder = place / f"{policy}-{self.servers[0].run >> 32:x}-{self._pushes + 1}"
            digest, size = written(model, folder, policy)
            if digest == self._held.get(policy, ("", None))[0]:
                shutil.rmtree(folder)
                continue
            self._pushes += 1
            self.pushed += size
            self._held[policy] = digest, folder
        folders = [folder for _, folder in self._held.values()]
        self._each(lambda s: s.swap(folders, version), self._live)
        for file in place.glob("*/adapter_model.safetensors"):
            if file.parent not in folders:
                shutil.rmtree(file.parent, ignore_errors=True)

    def version(self) -> int | None:
        """The version of all that answer; one without any was started anew, and is left out like one that does not
        answer. Raises EngineLost if none is left, WrongVersion if they differ."""

        def one(server: Server) -> int:
            if (held := server.version()) is None:
                raise EngineLost(f"the server {server.url} has none of the weights that it was given")
            return held

        live = list(self._live)
        versions = dict(zip((s.url for s in live), self._each(one, live), strict=True))
        there = {v for url, v in versions.items() if url in {s.url for s in self._live}}
        if not there:
            raise EngineLost(f"none of the {len(self.servers)} servers answers")
        if len(there) > 1:
            raise WrongVersion(f"the servers hold weights of different versions: {versions}")
        return there.pop()

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling,
        end_id: int,
        conversations: Sequence[int],
        policies: Sequence[str] = (),
    ) -> list[Completion | None]:
        all_known(policies, self.policies)
        who = [self._held[p][1].name for p in policies] or [""] * len(prompts)
        heads = [(w, *p) for w, p in zip(who, prompts, strict=True)]  # a prefix cache is that of one policy
        first = [self._place(c, h) for c, h in zip(conversations, heads, strict=True)]

        def one(i: int) -> Completion | None:
            server = first[i]
            while server is not None:
                try:
                    return server.completion(prompts[i], seeds[i], sampling, end_id, who[i])
                except EngineLost as e:
                    self._lose(server, e)
                finally:
                    with self._one:
                        self._flying[server] -= 1
                server = self._place(conversations[i], heads[i])
            return None

        with ThreadPoolExecutor(min(sum(s.workers for s in self.servers), len(prompts))) as pool:
            return list(pool.map(one, range(len(prompts))))

    def revive(self) -> None:
        """Wait until one answers. Raises EngineLost after the patience of the first."""

        def one() -> None:
            if not any(self._each(Server.answers, self.servers)):
                raise EngineLost(f"none of the {len(self.servers)} servers answers")

        wait(one, self.servers[0].patience)

    def _place(self, conversation: int, prompt: tuple[Any, ...]) -> Server | None:
        """The server of a turn, which is then in flight; None if all are lost. prompt: whose adapters, and ids."""
        with self._one:
            if not self._live:
                return None
            load = lambda s: self._flying[s]  # noqa: E731
            idle, known = min(self._live, key=load), self._home.get(conversation)
            if known not in self._live:  # new, or its server is gone: the other answers to its prompt come next
                known = self._home.get(prompt)
                if known not in self._live or load(known) > load(idle) + SLACK:
                    known = idle
                self._home[conversation] = self._home[prompt] = known
            self._flying[known] += 1
            return known

    def _each(self, ask: Callable[[Server], T], servers: Sequence[Server]) -> list[T | None]:
        """What each answers, at the same time; None of one that is lost, which is then left out."""

        def one(server: Server) -> T | None:
            try:
                return ask(server)
            except EngineLost as e:
                self._lose(server, e)
                return None

        with ThreadPoolExecutor(max(1, len(servers))) as pool:
            return list(pool.map(one, servers))

    def _lose(self, server: Server, why: EngineLost) -> None:
        with self._one:
            if server in self._live:
                self._live = [s for s in self._live if s is not server]
                print(f"warning: {why}: it is left out until the next weights", file=sys.stderr)

    def _probe(self) -> None:
        live = list(self._live)
        greedy = Sampling(temperature=0.0, max_tokens=1)
        completions = self._each(lambda s: s.completion(PROBE, 0, greedy, PROBE[0]), live)
        logps = {s.url: float(c.logp[0]) for s, c in zip(live, completions, strict=True) if c is not None}
        if logps and max(logps.values()) - min(logps.values()) > APART:
            values = ", ".join(f"{url}: {logp:.4f}" for url, logp in logps.items())
            raise ValueError(
                f"the servers differ after they read the same weights (log-prob of a probe: {values}): start all of them "
                "with the same model, dtype and version of vLLM (docs/engines.md)"
            )

    def _agrees(self, model: nn.Module, adapters: Mapping[str, str]) -> None:
        """Compare what each live server says of the probe with what the learner does. adapters: of each policy, as servers know them; "" for
        whole weights."""
        greedy = Sampling(temperature=0.0, max_tokens=SAID)
        apart = APART if head_weight(model).dtype == torch.float32 else ROUNDED
        for policy, name in adapters.items():
            live = list(self._live)
            completions = self._each(lambda s, name=name: s.completion(PROBE, 0, greedy, PROBE[0], name), live)
            for server, one in zip(live, completions, strict=True):
                if one is not None and (gap := np.abs(one.logp - _learned(model, policy, one.ids)).max()) > apart:
                    why = (
                        f"has another base than the policies: with the adapters of {policy!r}"
                        if policy
                        else "computes something else than the learner: with the weights that it was sent"
                    )
                    trained = "the policies are trained on" if policy else "is trained"
                    raise ValueError(
                        f"the server {server.url} {why} its log-probs of a probe are up to {gap:.4f} nats from the learner's; start it with "
                        f"the folder and the dtype of the model that {trained} (docs/engines.md)"
                    )


def _learned(model: nn.Module, policy: str, ids: np.ndarray) -> np.ndarray:
    """The learner's log-probs [n] of ids [n] after the probe, with the adapters of a policy if it has a name."""
    if policy:
        use(model, policy)
    row = np.concatenate([PROBE, ids])
    batch = pack([Row(ids=row, trainable=np.arange(len(row)) >= len(PROBE))], device=str(head_weight(model).device))
    return score(model, batch).logp[len(PROBE) :].float().cpu().numpy()


def suits(url: str, about: Mapping[str, Any], wanted: Mapping[str, Any], max_length: int) -> None:
    """Raises ValueError for a server that says (`Server.about`) that it has another model than is `wanted`, a version of vLLM that is not
    SUPPORTED, or room for shorter conversations than `max_length` tokens."""
    for name, value in wanted.items():
        if about.get(name) != value:
            raise ValueError(
                f"the server {url} runs a model with {name} {about.get(name)}, and the policy has {value}: start it with the policy's own "
                "model and dtype (docs/engines.md)"
            )
    if not about["version"].startswith(f"{SUPPORTED}."):
        raise ValueError(
            f"the server {url} runs vLLM {about['version']}, and this version of espalier works with {SUPPORTED}: install "
            f"'vllm>={SUPPORTED},<{AFTER}' there"
        )
    if about["max_model_len"] < max_length:
        raise ValueError(
            f"the server {url} takes conversations of {about['max_model_len']} tokens, and the stage has up to {max_length}: start it with "
            f"--max-model-len {max_length}"
        )


def agree(
    servers: Sequence[Server],
    wanted: dict[str, Any],
    max_length: int,
    *,
    policies: int = 0,
    rank: int = 0,
    tokenizer: str = "",
) -> None:
    """Raises ValueError for a server of another model than is `wanted` (`dtype`, `vocab_size`, `hidden_size`,
    `num_hidden_layers`), with other tokens than those of the digest `tokenizer` (transport.token_digest; "": not compared), of shorter
    conversations than `max_length` tokens, of a version of vLLM that is not SUPPORTED or another than the first's, or without room for so many `policies` of that `rank`; EngineLost for one that does not answer within its
    patience; WrongVersion for one that another run holds. This run then holds all of them, until it frees them."""
    versions: dict[str, str] = {}
    for s in servers:
        s.revive()
        about = s.about()
        if "holder" not in about:
            raise ValueError(
                f"the server {s.url} does not say which run holds it: start it with the worker extension of this version of espalier "
                "(docs/engines.md)"
            )
        suits(s.url, about, wanted, max_length)
        if tokenizer and not about.get("tokenizer"):
            print(
                f"warning: the server {s.url} does not say which tokens it has: they are not compared", file=sys.stderr
            )
        elif tokenizer and about["tokenizer"] != tokenizer:
            raise ValueError(
                f"the server {s.url} has another tokenizer than the policy, and stop strings are found with it: start it with --tokenizer and "
                "the folder of the policy's own model (docs/engines.md)"
            )
        if policies:
            _has_room(s, about, policies, rank)
        versions[s.url] = about["version"]
    if len(set(versions.values())) > 1:
        raise ValueError(f"the servers run different versions of vLLM ({versions}): install the same for all")
    for i, s in enumerate(servers):
        s.run = servers[0].run
        try:
            s.claim()
        except (EngineLost, ValueError):
            for mine in servers[:i]:
                mine.free()
            raise


def _has_room(server: Server, about: dict[str, Any], policies: int, rank: int) -> None:
    flags = f"--enable-lora --max-loras {policies} --max-lora-rank {room_for(rank)}"
    if not about["max_lora_rank"] or not server.swaps():
        raise ValueError(
            f"the server {server.url} does not exchange adapters while it runs, and each of {policies} policies is a set of "
            f"them: start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and {flags} (docs/engines.md)"
        )
    if about["max_lora_rank"] < rank:
        raise ValueError(
            f"the server {server.url} takes adapters up to rank {about['max_lora_rank']}, and a policy has {rank}: start it "
            f"with {flags}, or set a lower lora.rank"
        )
    if about["max_loras"] < policies:
        raise ValueError(
            f"the server {server.url} has room for {about['max_loras']} set of adapters in a batch, and the run has "
            f"{policies} policies: start it with {flags}"
        )
