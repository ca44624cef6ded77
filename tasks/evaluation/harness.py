"""Tasks of lm-evaluation-harness (Gao et al., EleutherAI) run on our models: with its prompts, filters and metrics, our
learner's log-probs and our sampler's turns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from lm_eval import evaluator
from lm_eval.api.metrics import mean
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from synth.types import Sampling, digest, seed_for
from tasks.core.errors import UserError, nearest
from tasks.evaluation.scored_set import Benchmark, Player, Row
from tasks.runtime.stage import Stage
from training.learner.continuations import continuation_logp
from training.rollout.torch_sampler import TorchSampler

EXAMPLES = 1234  # the harness's own seed of few-shot examples
REDRAWS = 200  # resamples of items, for the interval of a metric that is not a mean


class HarnessModel(TemplateLM):
    """Our model with the interface that the harness expects."""

    def __init__(self, player: Player, seed: int) -> None:
        super().__init__()
        self.player, self.seed = player, seed
        self.tokenizer: Any = player.renderer.tokenizer
        self.max_gen_toks = 256

    @property
    def eot_token_id(self) -> int:
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        first = self.tokenizer.bos_token_id
        return self.eot_token_id if first is None else first

    @property
    def max_length(self) -> int:
        return self.player.longest

    @property
    def tokenizer_name(self) -> str:
        return self.tokenizer.name_or_path.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        begun = string.startswith(self.tokenizer.decode([self.prefix_token_id]))
        special = not begun if add_special_tokens is None else add_special_tokens
        return self.tokenizer.encode(string, add_special_tokens=special)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            enable_thinking=False,
        )

    def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        pairs = [(before, ids) for _, before, ids in requests]
        return continuation_logp(self.player.model, pairs, longest=self.max_length)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        out = []
        for request in requests:
            (text,) = request.args
            windows = get_rolling_token_windows(self.tok_encode(text), self.prefix_token_id, self.max_length, 1)
            pairs = [make_disjoint_window(w) for w in windows]
            out.append(sum(s for s, _ in continuation_logp(self.player.model, pairs, longest=self.max_length)))
        return out

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        out = [""] * len(requests)
        kinds: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            kinds.setdefault(repr(request.args[1]), []).append(i)
        renderer = self.player.renderer
        sampler = TorchSampler(self.player.model, renderer.end_id, renderer=renderer)
        for places in kinds.values():
            options: dict[str, Any] = dict(normalize_gen_kwargs(dict(requests[places[0]].args[1]), self.max_gen_toks))
            most, stops = options["max_gen_toks"], [s for s in options.get("until") or [] if s]
            if most >= self.max_length:
                raise UserError(
                    f"evaluate.sets: a task asks for {most} tokens, and the model sees {self.max_length}: choose another task, or give "
                    "its file fewer max_gen_toks"
                )
            sampling = Sampling(
                temperature=options["temperature"],
                top_p=float(options.get("top_p") or 1.0),
                top_k=int(options.get("top_k") or 0),
                max_tokens=most,
                stop=tuple(stops),
                stop_ids=(self.eot_token_id,),
            )
            prompts = [
                np.array(self.tok_encode(requests[i].args[0])[most - self.max_length :], dtype=np.int64) for i in places
            ]
            seeds = [seed_for(self.seed, "harness", requests[i].args[0], n) for n, i in enumerate(places)]
            for i, turn in zip(places, sampler.open(prompts, seeds).generate(sampling), strict=True):
                text = self.tokenizer.decode([int(x) for x in turn.ids], skip_special_tokens=True)
                out[i] = postprocess_generated_text(text, stops, None)
        return out


def load_task(stage: Stage, spec: Mapping[str, Any], where: str) -> Benchmark:
    """An entry of `evaluate.sets` with the key `task`. Raises UserError for a task that does not exist or has no
    data."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    folder = str(stage.source(spec["tasks"])) if "tasks" in spec else None
    manager = TaskManager(include_path=folder, include_defaults=folder is None)
    if spec["task"] not in manager.all_tasks:
        of = f"in {spec['tasks']}" if folder else "in lm-evaluation-harness"
        raise UserError(f"{where}: there is no task {spec['task']!r} {of}: {nearest(spec['task'], manager.all_tasks)}")
    try:
        tasks = manager.load([spec["task"]])["tasks"]
        docs = {name: list(task.eval_docs) for name, task in tasks.items()}
    except (OSError, ValueError, ConnectionError) as e:
        raise UserError(
            f"{where}: the data of the task {spec['task']!r} could not be loaded: {' '.join(str(e).split())[:300]}"
        ) from None
    for task in tasks.values():
        if spec.get("fewshot") is not None:
            task.set_config(key="num_fewshot", value=int(spec["fewshot"]))
        task.set_fewshot_seed(seed=EXAMPLES)
    texts: dict[str, tuple[str, int, str]] = {}
    for name, of_task in docs.items():
        order = sorted(range(len(of_task)), key=lambda i: digest("evaluate", stage.seed, name, i))
        for i in sorted(order[: spec.get("limit") or None]):
            doc_text = tasks[name].doc_to_text(of_task[i])
            texts[f"{name}:{i}"] = (name, i, doc_text if isinstance(doc_text, str) else str(of_task[i]))
    called = {name: spec["name"] if len(tasks) == 1 else f"{spec['name']}/{name}" for name in tasks}
    aggregations = {called[name]: task.aggregation() for name, task in tasks.items()}

    def score(player: Player, items: Sequence[str]) -> list[Row]:
        wanted: dict[str, list[int]] = {}
        for item in items:
            wanted.setdefault(texts[item][0], []).append(texts[item][1])
        results = evaluator.evaluate(
            HarnessModel(player, stage.seed),
            {"tasks": {name: tasks[name] for name in wanted}, "groups": {}, "group_map": {}},
            samples=wanted,
            bootstrap_iters=0,
            apply_chat_template=bool(spec.get("chat")),
        )
        assert results is not None  # it is for processes of a higher rank, and there is one
        rows = []
        for name in wanted:
            by_item: dict[int, Row] = {}
            samples = results.get("samples", {})[name]
            several = len({s["filter"] for s in samples}) > 1
            for s in samples:
                row = by_item.setdefault(s["doc_id"], {"item": f"{name}:{s['doc_id']}", "set": called[name]})
                for metric in s["metrics"]:
                    row[f"{metric} ({s['filter']})" if several else metric] = _plain(s[metric])
            rows += [by_item[i] for i in sorted(by_item)]
        return rows

    def summary(metric: str, rows: Sequence[Row]) -> Mapping[str, float] | None:
        of_task: Mapping[str, Any] = aggregations[rows[0]["set"]] or {}
        return whole(of_task.get(metric.partition(" (")[0]), [r[metric] for r in rows], stage.seed)

    shown = tuple((item, text) for item, (_, _, text) in texts.items())
    return Benchmark(spec["name"], f"lm-evaluation-harness, {spec['task']}", shown, score, summary=summary)


def whole(aggregate: Callable | None, values: Sequence[Any], seed: int) -> Mapping[str, float] | None:
    """A task's value over all items, with the interval of resampled items (Efron 1979); None if that is the mean."""
    if aggregate in (None, mean) and all(isinstance(v, int | float) for v in values):
        return None
    if aggregate is None:
        raise ValueError("a metric whose items are not numbers needs an aggregation")
    items = [tuple(v) if isinstance(v, list) else v for v in values]
    rng = np.random.default_rng(seed_for(seed, "harness", len(items)))
    drawn = [aggregate([items[i] for i in rng.integers(0, len(items), len(items))]) for _ in range(REDRAWS)]
    low, high = np.percentile([float(x) for x in drawn], [2.5, 97.5])
    return {"mean": float(aggregate(items)), "low": float(low), "high": float(high), "n": len(items)}


def _plain(value: Any) -> Any:
    """In JSON form, so that a resumed run gives the same as an uninterrupted one."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else float(value) if isinstance(value, bool) else value
