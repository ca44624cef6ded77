"""Tasks of Inspect (UK AI Security Institute) run on our models: with its data, solvers and scorers, our chat template and
our sampler's turns."""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio import to_thread
from inspect_ai import Task, eval as run_inspect
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelAPI, ModelOutput, get_model, modelapi
from inspect_ai.scorer import value_to_float

from synth.types import Message, Sampling, digest, seed_for
from tasks.core.errors import UserError
from tasks.evaluation.scored_set import Benchmark, Player, Row
from tasks.runtime.stage import Stage
from training.rollout.torch_sampler import TorchSampler

MOST = 256  # tokens of a turn where a task names no number
TOGETHER = 64  # requests that are answered in one batch, at most
_GATHERED = 0.02  # seconds in which requests are gathered into a batch


@dataclass
class _Asked:
    messages: list[Message]
    sampling: Sampling
    output: ModelOutput | None = None
    error: Exception | None = None


@modelapi(name="espalier")
class InspectModel(ModelAPI):
    """Our model with the interface that Inspect expects. Requests that come in together are one batch; what a request
    gets does not depend on the others."""

    def __init__(self, model_name: str, *_: Any, player: Player, seed: int, **__: Any) -> None:
        super().__init__(model_name)
        self.player, self.seed = player, seed
        self.waiting: list[_Asked] = []
        self.seen: Counter[str] = Counter()
        self.lock: anyio.Lock | None = None

    def max_connections(self) -> int:
        return TOGETHER

    async def generate(
        self, input: list[ChatMessage], tools: Sequence[Any], tool_choice: Any, config: GenerateConfig
    ) -> ModelOutput:
        if tools:
            raise UserError(
                "a task of Inspect gives its model tools, which is not supported here: run it with Inspect itself against "
                "`espalier serve MODEL`"
            )
        if (config.num_choices or 1) > 1:
            raise UserError("a task of Inspect asks for several choices at once (num_choices): let it use epochs")
        request = _Asked([_message(m) for m in input], _sampling(config))
        self.waiting.append(request)
        self.lock = self.lock or anyio.Lock()
        async with self.lock:
            if request.output is None and request.error is None:
                await anyio.sleep(_GATHERED)
                batch, self.waiting = self.waiting[:TOGETHER], self.waiting[TOGETHER:]
                await to_thread.run_sync(self._answer, batch)
        if request.error is not None:
            raise request.error
        assert request.output is not None
        return request.output

    def _answer(self, batch: Sequence[_Asked]) -> None:
        alike: dict[Sampling, list[_Asked]] = {}
        for request in batch:
            alike.setdefault(request.sampling, []).append(request)
        for sampling, same in alike.items():
            try:
                self._sample(same, sampling)
            except Exception as e:  # raised where the request waits
                for request in same:
                    request.error = e

    def _sample(self, same: Sequence[_Asked], sampling: Sampling) -> None:
        """The answers to requests with the same settings, in one batch."""
        renderer = self.player.renderer
        prompts, seeds = [], []
        for request in same:
            ids = renderer.prompt(request.messages)
            if len(ids) + sampling.max_tokens > self.player.longest:
                raise UserError(
                    f"a task of Inspect has a conversation of {len(ids)} tokens and asks for {sampling.max_tokens} more, and the model "
                    f"sees {self.player.longest}: give the task fewer max_tokens"
                )
            text = repr(request.messages)
            prompts.append(ids)
            seeds.append(seed_for(self.seed, "inspect", text, self.seen[text]))
            self.seen[text] += 1
        sampler = TorchSampler(self.player.model, renderer.end_id, renderer=renderer)
        for request, turn in zip(same, sampler.open(prompts, seeds).generate(sampling), strict=True):
            text = str(renderer.tokenizer.decode([int(x) for x in turn.ids], skip_special_tokens=True))
            ended = "stop" if len(turn.ids) < sampling.max_tokens else "max_tokens"
            request.output = ModelOutput.from_content("espalier", text, stop_reason=ended)


def _sampling(config: GenerateConfig) -> Sampling:
    return Sampling(
        temperature=config.temperature or 0.0,
        top_p=1.0 if config.top_p is None else config.top_p,
        top_k=config.top_k or 0,
        max_tokens=config.max_tokens or MOST,
        stop=tuple(config.stop_seqs or ()),
    )


def _message(m: ChatMessage) -> Message:
    if m.role == "tool" or any(getattr(part, "type", "text") != "text" for part in _parts(m)):
        raise UserError(
            f"a task of Inspect has a {m.role} message that is not plain text: run it with Inspect itself against `espalier serve MODEL`"
        )
    return Message(role=m.role, content=m.text)


def _parts(m: ChatMessage) -> Sequence[Any]:
    return m.content if isinstance(m.content, list) else ()


def load_task(stage: Stage, spec: Mapping[str, Any], where: str) -> Benchmark:
    """An entry of `evaluate.sets` with the key `inspect`: `FILE.py@TASK` below data/, or `MODULE@TASK` of a package that
    is installed. Raises UserError for a task that does not exist, has no data, or needs a sandbox."""
    task = _task(stage, str(spec["inspect"]), where)
    samples = {f"{_id(s, i)}": s for i, s in enumerate(task.dataset)}
    if not samples:
        raise UserError(f"{where}: the task {spec['inspect']!r} has no samples")
    if task.sandbox is not None or any(s.sandbox is not None for s in samples.values()):
        raise UserError(
            f"{where}: the task {spec['inspect']!r} needs a sandbox: run it with Inspect itself against `espalier serve MODEL`"
        )
    order = sorted(samples, key=lambda i: digest("evaluate", stage.seed, spec["name"], i))
    drawn = set(order[: spec.get("limit") or None])
    texts = tuple((i, _text(s)) for i, s in samples.items() if i in drawn)

    def score(player: Player, items: Sequence[str]) -> list[Row]:
        wanted = set(items)
        ids = [_id(s, n) for n, (i, s) in enumerate(samples.items()) if i in wanted]
        model = get_model("espalier/model", memoize=False, player=player, seed=stage.seed)
        log = _run(_task(stage, str(spec["inspect"]), where), model, ids, where)
        by_item: dict[str, list[Mapping[str, float]]] = {}
        for s in log.samples or ():
            by_item.setdefault(str(s.id), []).append(_numbers(s.scores or {}, where))
        return [{"item": i, "set": spec["name"], **_mean(by_item[i])} for i in items]

    return Benchmark(spec["name"], f"Inspect, {spec['inspect']}", texts, score)


def _run(task: Task, model: Model, ids: list[Any], where: str) -> Any:
    """The log of the task over these samples. In a thread of its own: the stage's may have a loop of events."""
    with TemporaryDirectory(prefix="espalier-inspect-") as folder, ThreadPoolExecutor(1) as thread:
        (log,) = thread.submit(
            lambda: run_inspect(
                task,
                model=model,
                sample_id=ids,
                log_dir=folder,
                log_format="json",
                display="none",
                log_level="error",
                fail_on_error=True,
                retry_on_error=0,
            )
        ).result()
        if log.status != "success":
            why = log.error.message if log.error else log.status
            raise UserError(f"{where}: the task ended with {' '.join(str(why).split())[:400]}")
        return log


def _task(stage: Stage, name: str, where: str) -> Task:
    """The task, made anew: a run changes it."""
    place, _, function = name.rpartition("@")
    if not place or not function:
        raise UserError(f"{where}: inspect is {name!r}: write FILE.py@TASK with a file below data/, or MODULE@TASK")
    try:
        module = _module(stage.source(place)) if place.endswith(".py") else importlib.import_module(place)
        make: Callable[[], Task] = getattr(module, function)
        return make()
    except (ImportError, AttributeError) as e:
        raise UserError(f"{where}: there is no task {name!r}: {e}") from e
    except (OSError, ValueError) as e:
        raise UserError(f"{where}: the task {name!r} could not be made: {' '.join(str(e).split())[:300]}") from e


class _Loader(SourceFileLoader):
    """Leaves no compiled file beside the source: `data/` is an input of the stage."""

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:
        pass


def _module(path: Path) -> Any:
    name = f"espalier_inspect_{path.stem}"
    spec = importlib.util.spec_from_loader(name, _Loader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _id(sample: Sample, place: int) -> Any:
    """As Inspect numbers samples without an id."""
    return place + 1 if sample.id is None else sample.id


def _text(sample: Sample) -> str:
    if isinstance(sample.input, str):
        return sample.input
    return "\n".join(m.text for m in sample.input if m.role == "user")


def _numbers(scores: Mapping[str, Any], where: str) -> dict[str, float]:
    """The value of each scorer as a number: C, I, P and N are 1, 0, 0.5 and 0; a scorer that gives several values has a
    metric for each."""
    number = value_to_float()
    out: dict[str, float] = {}
    for name, score in scores.items():
        if isinstance(score.value, Mapping):
            out |= {f"{name}/{k}": float(number(v)) for k, v in score.value.items() if v is not None}
        elif isinstance(score.value, str | int | float | bool):
            out[name] = float(number(score.value))
        else:
            raise UserError(f"{where}: the scorer {name} gives a list, which is no metric of an item")
    return out


def _mean(epochs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {k: sum(e[k] for e in epochs) / len(epochs) for k in epochs[0]}
