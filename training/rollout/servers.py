"""Several vLLM servers with the same weights, as one `Engine`.

The router is here, in the process that asks: a conversation stays with the server that has its earlier turns in its
prefix cache, and a new one goes where the fewest are in flight (sticky and least loaded, as the router of prime-rl:
plain hashing fills one server while others wait). All servers read the weights from one folder. None is asked for a
turn before it has reported the version, and before its log-prob of a probe agrees with that of the others.

A server that does not answer is left out until the next weights: its turns are asked elsewhere, with the same seeds,
and since a turn is asked as ids, the other server goes on where it stopped. One that is back by then gets the weights
and its share. Only if no server answers is the engine lost.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from torch import nn

from synth.types import Sampling
from training.rollout.engine import Completion, EngineLost, WrongVersion
from training.rollout.vllm_engine import Server, laid, wait

SLACK = 8  # conversations that a server may have more than the least loaded before a known prompt goes elsewhere
PROBE, APART = (1, 2, 3, 4), 0.02  # ids of the probe, and how many nats servers of one model may differ on it
T = TypeVar("T")


@dataclass(eq=False)
class Servers:
    """servers  at least one, of the same model, dtype and version of vLLM (`agree`)"""

    elsewhere: ClassVar[bool] = True

    servers: Sequence[Server]
    _live: list[Server] = field(default_factory=list, init=False, repr=False)
    _home: dict[Any, Server] = field(default_factory=dict, init=False, repr=False)
    _flying: Counter[Server] = field(default_factory=Counter, init=False, repr=False)
    _one: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        for other in self.servers[1:]:
            other.run = self.servers[0].run

    def load(self, model: nn.Module, version: int) -> None:
        """Have all that answer read the weights. Raises EngineLost if none does, ValueError if their log-probs
        differ."""
        up = self._each(Server.answers, self.servers)
        there = [s for s, answers in zip(self.servers, up, strict=True) if answers]
        for s in set(self.servers) - set(there):
            print(
                f"warning: the server {s.url} does not answer: it is left out until the next weights", file=sys.stderr
            )
        with laid(self.servers[0].weights, model, version) as folder:
            self._live = there
            self._each(lambda s: s.read(folder, version), there)
        self._home.clear()  # their prefix caches are empty
        if not self._live:
            raise EngineLost(f"none of the {len(self.servers)} servers took the weights")
        self._probe()

    def version(self) -> int | None:
        """The version of all that answer. Raises EngineLost if none does, WrongVersion if they differ."""
        live = list(self._live)
        versions = dict(zip((s.url for s in live), self._each(Server.version, live), strict=True))
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
    ) -> list[Completion | None]:
        first = [self._place(c, p) for c, p in zip(conversations, prompts, strict=True)]

        def one(i: int) -> Completion | None:
            server = first[i]
            while server is not None:
                try:
                    return server.completion(prompts[i], seeds[i], sampling, end_id)
                except EngineLost as e:
                    self._lose(server, e)
                finally:
                    with self._one:
                        self._flying[server] -= 1
                server = self._place(conversations[i], prompts[i])
            return None

        with ThreadPoolExecutor(min(sum(s.workers for s in self.servers), len(prompts))) as pool:
            return list(pool.map(one, range(len(prompts))))

    def revive(self) -> None:
        """Wait until one answers. Raises EngineLost after the patience of the first."""

        def one() -> None:
            if not any(self._each(Server.answers, self.servers)):
                raise EngineLost(f"none of the {len(self.servers)} servers answers")

        wait(one, self.servers[0].patience)

    def _place(self, conversation: int, prompt: Sequence[int]) -> Server | None:
        """The server of a turn, which is then in flight; None if all are lost."""
        with self._one:
            if not self._live:
                return None
            load = lambda s: self._flying[s]  # noqa: E731
            idle, known = min(self._live, key=load), self._home.get(conversation)
            if known not in self._live:  # new, or its server is gone: the other answers to its prompt come next
                known = self._home.get(tuple(prompt))
                if known not in self._live or load(known) > load(idle) + SLACK:
                    known = idle
                self._home[conversation] = self._home[tuple(prompt)] = known
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


def agree(servers: Sequence[Server], wanted: dict[str, Any], max_length: int) -> None:
    """Raises ValueError for a server of another model than is `wanted` (`dtype`, `vocab_size`, `hidden_size`,
    `num_hidden_layers`), of shorter conversations than `max_length` tokens, or of another version of vLLM than the
    first; EngineLost for one that does not answer within its patience."""
    versions: dict[str, str] = {}
    for s in servers:
        s.revive()
        about = s.about()
        for name, value in wanted.items():
            if about[name] != value:
                raise ValueError(
                    f"the server {s.url} runs a model with {name} {about[name]}, and the policy has {value}: start it "
                    "with the policy's own model and dtype (docs/engines.md)"
                )
        if about["max_model_len"] < max_length:
            raise ValueError(
                f"the server {s.url} takes conversations of {about['max_model_len']} tokens, and the stage has up to "
                f"{max_length}: start it with --max-model-len {max_length}"
            )
        versions[s.url] = about["version"]
    if len(set(versions.values())) > 1:
        raise ValueError(f"the servers run different versions of vLLM ({versions}): install the same for all")
