"""A taskset of verifiers (PyPI, 0.4 and later; https://github.com/PrimeIntellect-ai/verifiers), scored by its own
rewards: tasks with a single reply, and tasks whose package has an `Env` that talks with one agent over several turns.

The `Env` runs unchanged, in a thread; its agent is the policy, as a chat without tools. Rewards that need a runtime (a
container, a harness), tools and a second agent are refused: run such an environment as a program that requests turns
(docs/agents.md).
"""

import asyncio
import hashlib
import inspect
import itertools
import queue
import threading
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import version

PROGRAM = "play it as a program (docs/agents.md)"


class Verifiers:
    def __init__(self, taskset, answer, most, config):
        graph = import_module("verifiers.v1.graph")
        self.node, self.trace = graph.MessageNode, import_module("verifiers.v1.trace")
        self.types, self.agent = import_module("verifiers.v1.types"), import_module("verifiers.v1.agent")
        loaders = import_module("verifiers.v1.utils.loaders")
        try:
            kind = loaders.taskset_config_type(taskset)
            tasks = loaders.load_taskset(kind(id=taskset, **config))
        except ModuleNotFoundError as e:
            raise ValueError(f"there is no taskset {taskset!r} ({e}): install its package beside verifiers") from e
        self.tasks, self.answer = list(itertools.islice(tasks, most)), answer
        if not self.tasks:
            raise ValueError(f"the taskset {taskset} is empty")
        for hook in self.tasks[0].hooks("reward"):
            runtime = inspect.signature(hook).parameters.get("runtime")
            if runtime is not None and runtime.default is inspect.Parameter.empty:
                raise ValueError(f"the reward {hook.__name__} of {taskset} wants a runtime: {PROGRAM}")
        if self.tasks[0].toolsets(self.tasks[0].config) or self.tasks[0].NEEDS_CONTAINER:
            raise ValueError(f"the tasks of {taskset} want tools or a container: {PROGRAM}")
        self.env, self.seat = None, ""
        self.turns = loaders.environment_class(taskset).__name__ != "SingleAgentEnv"
        if self.turns:
            self.env = loaders.load_environment(loaders.resolve_env_config({"taskset": {"id": taskset, **config}}))
            seats = list(import_module("verifiers.v1.configs.agent").agent_config_fields(self.env.config))
            if len(seats) != 1:
                raise ValueError(f"{taskset} is played by {' and '.join(seats)}, and one agent is trained: {PROGRAM}")
            self.seat = seats[0]
        self.name, self.version = f"verifiers.{taskset}", version("verifiers")

    def problem(self, seed, split, index):
        places = [i for i, task in enumerate(self.tasks) if share(task) == split]
        if index >= len(places):
            return None
        task, item = self.tasks[places[index]], {"idx": places[index]}
        answer = getattr(task.data, self.answer, "") if self.answer else ""
        first = plain(self.types, opening(self.types, task))
        if not first:  # the environment speaks first
            episode = self.episode(item)
            first = episode.start()
            episode.close()
        return {"prompt": first, "answer": str(answer), "item": item, "split": split}

    def score(self, item, answer):
        task = self.tasks[item["idx"]]
        trace = self.traced(task)
        for message in (*opening(self.types, task), self.types.AssistantMessage(content=answer)):
            self.heard(trace, message)
        asyncio.run(task.score(trace))
        return trace.reward, named(trace)

    def episode(self, item):
        return Episode(self, self.tasks[item["idx"]])

    def traced(self, task):
        """The trace of a conversation about a task, empty."""
        return self.trace.Trace.model_construct(
            task=self.trace.TraceTask.model_construct(data=task.data), nodes=[], rewards={}, metrics={}, info={}
        )

    def heard(self, trace, message):
        written = isinstance(message, self.types.AssistantMessage)
        trace.nodes.append(
            self.node(message=message, parent=len(trace.nodes) - 1 if trace.nodes else None, sampled=written)
        )


class Episode:
    """One run of the `Env` in a thread: it blocks in a turn of its agent until the model's reply arrives."""

    def __init__(self, host, task):
        self.host, self.task = host, task
        self.told, self.replies = queue.Queue(), queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self):
        return self._next()[0]

    def step(self, text):
        self.replies.put(text)
        return self._next()

    def close(self):
        self.replies.put(None)

    def _next(self):
        heard = self.told.get()
        if isinstance(heard, BaseException):
            raise heard
        return heard

    def _run(self):
        try:
            self.told.put(([], True, asyncio.run(self._played())))
        except BaseException as e:  # noqa: BLE001 (said to the one who asks for the next turn)
            self.told.put(e)

    async def _played(self):
        env, seat = self.host.env, Seat(self)
        agents = type("Agents", (), {self.host.seat: seat})()
        await env.setup(agents)
        await env.run(self.task, agents)
        if seat.trace is None:
            raise ValueError("its environment ended without asking its agent")
        episodes = import_module("verifiers.v1.episode")
        await env.finalize(self.task, episodes.Episode.model_construct(traces=[seat.trace], errors=[], ok=True))
        return seat.trace.reward


class Seat:
    """The agent of an `Env`, played by the policy: it has the interface of `verifiers.v1.agent.Agent`."""

    def __init__(self, episode):
        self.episode, self.host, self.trace, self.trainable = episode, episode.host, None, True

    @asynccontextmanager
    async def interaction(self, task, **_):
        if self.trace is not None:
            raise ValueError(f"its environment begins a second conversation: {PROGRAM}")
        self.trace = self.host.traced(task)
        yield Exchange(self, task)
        await task.score(self.trace)

    async def run(self, task, **_):
        async with self.interaction(task) as exchange:
            await exchange.turn()
        return self.trace


class Exchange:
    def __init__(self, seat, task):
        self.seat, self.trace, self.first = seat, seat.trace, opening(seat.host.types, task)

    async def turn(self, message=None):
        host, episode = self.seat.host, self.seat.episode
        if isinstance(message, str):
            message = [host.types.UserMessage(content=message)]
        told = [*self.first, *(message or [])]
        self.first = []
        for one in told:
            host.heard(self.trace, one)
        episode.told.put((plain(host.types, told), False, 0.0))
        text = await asyncio.to_thread(episode.replies.get)
        if text is None:
            raise asyncio.CancelledError
        reply = host.types.AssistantMessage(content=text)
        host.heard(self.trace, reply)
        return host.agent.Segment(messages=[reply], root_reply=text)


def opening(types, task):
    """The messages that the model sees first."""
    prompt, data = task.data.prompt, task.data
    first = [types.UserMessage(content=prompt)] if isinstance(prompt, str) else list(prompt or [])
    return [types.SystemMessage(content=data.system_prompt), *first] if data.system_prompt and first else first


def plain(types, messages):
    return [{"role": m.role, "content": types.content_text(m.content)} for m in messages]


def named(trace):
    """The parts of a score."""
    rewards = {k: r.value for k, r in trace.rewards.items() if r is not None}
    return {**rewards, **{k: v for k, v in trace.metrics.items() if v is not None}}


def share(task):
    """The split of a task, by the hash of its prompt, or of all its data if the environment speaks first."""
    text = task.data.prompt_text or task.hash
    u = int(hashlib.sha256(text.encode()).hexdigest()[:12], 16) / 16**12
    return "test" if u < 0.15 else "valid" if u < 0.25 else "train"


def verifiers(*, taskset, answer="", most=10000, **config):
    """taskset: id of an installed one. answer: the field of its data that is the reference answer. most: how many tasks
    are read. The others are its configuration."""
    return Verifiers(taskset, answer, most, config)
