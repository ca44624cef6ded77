"""Estimates what a run from a pretrained model takes, before anything is loaded: the memory of each stage and its
parts, and time.

Memory is arithmetic over the model's shape (`Size.parts` of training/model/size.py; tests compare it with what torch's
tracker counts on fake tensors). Time on a CPU is derived from a measured matrix product. Time on devices is derived
from data sheets and from the shares assumed here, and is called predicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.core.errors import UserError
from tasks.core.labels import TRAINED
from tasks.planning.devices import NETWORK, Machines
from training.model.size import Size, size_by_config, size_of

METHODS = ("full", "lora", "qlora")
LEARNING, SAMPLING = 0.6, 0.3  # share of the operations a second of a large product, measured on SmolLM2
OF_SHEET = 0.4  # share of a data sheet's operations a second that training steps are assumed to reach
OF_LINK = 0.7  # assumed share of a link's or a memory's bytes a second
LAUNCHED = 20 * 6e-6  # least seconds of a layer per sampled token, because kernels are launched one by one
FREE = 0.92  # share of a device's memory that a step may be predicted to take: the rest is lost to fragmentation
RANK = 16


def size(plans: Mapping[str, Mapping[str, Any]]) -> Size | None:
    """The size of the model that a run starts from; None if the run makes its own, or the model's files are not
    here."""
    named = (plans.get("sft") or {}).get("params", {}).get("model") or ""
    return size_of(named) if named else None


def size_named(name: str) -> Size:
    """The size of a named model, whose weights need not be here. Raises UserError."""
    try:
        return size_of(name) or size_by_config(name)
    except ValueError as e:
        raise UserError(f"estimate: {e}") from e


def memory(plans: Mapping[str, Mapping[str, Any]], model: Size) -> dict[str, float]:
    """Stage that trains -> its peak memory in bytes: of one device, or on a CPU of all its processes."""
    out = {}
    place = (plans.get("_run") or {}).get("place", {})
    for name in (n for n in TRAINED if n in plans and plans[n]["params"].get("steps")):
        p, at = plans[name]["params"], place.get(name, {})
        learners, shards = at.get("learners", 1), at.get("shards", 1)
        samplers = at.get("samplers", 1)
        out[name] = of_stage(plans[name], model, shards=shards, samplers=samplers)
        if p["device"] == "cpu":
            out[name] += (learners - 1) * sum(
                v for k, v in parts(plans[name], model, shards=shards).items() if k not in OF_FIRST
            )
            if samplers > 1:
                out[name] += samplers * server(plans[name]["params"], model)
    return out


OF_FIRST = ("whole model of the first process", "cache")  # parts that only the first of several processes has


def server(p: Mapping[str, Any], model: Size) -> float:
    """Bytes of one vLLM engine: its cache, whose size is a knob, and its own copy of the weights."""
    return p["engine"]["memory"] * 2**30 + model.parameters * (2 if p["dtype"] == "bfloat16" else 4)


def parts(
    plan: Mapping[str, Any], model: Size, *, shards: int = 1, samplers: int = 1, **other: Any
) -> dict[str, float]:
    """Part of a stage -> its bytes in the learner's process that takes most; `other` are knobs that replace the stage's
    own. Several samplers are processes of their own (`server`), each on a device of its own."""
    p = {**plan["params"], **other}
    each = 2 if p["dtype"] == "bfloat16" else 4
    lora, gpu = p.get("lora") or {}, p["device"] != "cpu"
    tokens, checkpointing = p["tokens_per_microbatch"], p.get("gradient_checkpointing", False)
    how = {"bytes_each": each, "checkpointing": checkpointing, "shards": shards, "gpu": gpu}
    out = model.parts(tokens, lora=lora.get("rank", 0), base=lora.get("base", ""), **how)
    if "reference" in plan.get("needs", ()):
        frozen = model.parts(0, lora=1, base=lora.get("base", ""), bytes_each=each)["weights"]
        out["reference"] = frozen if lora.get("base") and "prompts_per_step" in p else model.parameters * each
    if (p.get("critic") or {}).get("loss"):
        state = model.parts(0, bytes_each=each, shards=shards)
        out["critic"] = sum(v for k, v in state.items() if k != "process") * max(1, len(p.get("policies") or ()))
    if "prompts_per_step" in p and samplers == 1 and (engine := p["engine"]["name"]) in ("torch", "vllm"):
        conversations = p["prompts_per_step"] * p["samples_per_prompt"]
        kept = model.cache(conversations, p["sampling"]["max_tokens"], each)
        out["cache"] = kept if engine == "torch" else server(p, model)
    return out


def of_stage(plan: Mapping[str, Any], model: Size, *, shards: int = 1, samplers: int = 1, **other: Any) -> float:
    """The bytes of one stage in the learner's process that takes most; `other` are knobs that replace the stage's own."""
    p = {**plan["params"], **other}
    held = parts(plan, model, shards=shards, samplers=samplers, **other)
    out = sum(held.values())
    if p.get("asynchrony", {}).get("piece") == "sync":  # it samples, frees the cache, and then learns
        out -= min(held.get("cache", 0.0), sum(held.get(k, 0.0) for k in ("gathered", "activations", "head")))
    each = 2 if p["dtype"] == "bfloat16" else 4
    if (p.get("lora") or {}).get("base") and p["device"] == "cpu":  # elsewhere it is loaded into the machine's memory
        out = max(out, model.loading(each))
    if shards > 1:  # each process loads all weights before it drops those outside its shard
        out = max(out, model.loading(each) + 4 * model.parameters / shards + 4 * max(model.root, model.layer))
    return out


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a stage is run: its knobs of place, and `knobs` that replace those of the plan. `memory` and `time`: part ->
    bytes of a learner's device, seconds of a step; both predicted. Several samplers have a device each besides."""

    stage: str
    method: str
    learners: int
    shards: int
    samplers: int
    knobs: Mapping[str, Any]
    memory: Mapping[str, float]
    total: float
    time: Mapping[str, float]

    def flags(self, plan: Mapping[str, Any]) -> list[str]:
        """The settings as flags of `espalier run`, without those that are as planned."""
        p = plan["params"]
        place = {k: v for k in ("learners", "shards", "samplers") if (v := getattr(self, k)) > 1}
        lora = {k: v for k, v in (self.knobs.get("lora") or {}).items() if (p.get("lora") or {}).get(k) != v}
        own = {k: v for k, v in self.knobs.items() if k != "lora" and p.get(k) != v}
        changed = {**place, **own, **({"lora": lora} if lora else {})}
        return [f"--set {self.stage}.{flag}" for k, v in changed.items() for flag in _flags(k, v)]


def settings(
    name: str, plan: Mapping[str, Any], model: Size, at: Machines, method: str, samplers: int = 1
) -> Iterator[Setting]:
    """Every setting of a stage and a method that fits, on at most this many devices; several samplers take theirs
    first, on the first machine."""
    p = plan["params"]
    left = at.each
    if samplers > 1:
        left -= samplers
        if server(p, model) > FREE * at.device.memory:
            return
    own = p.get("lora") or {}
    lora = {"lora": {"rank": own.get("rank", RANK)} | ({"base": "nf4"} if method == "qlora" else {})}
    lora = {"lora": {}} if method == "full" else {"lora": {**own, **lora["lora"]}}
    if "lora" not in p:  # the stage supports no adapters
        if method != "full":
            return
        lora = {}
    knob = "gradient_checkpointing"
    ways: list[dict[str, Any]] = [{knob: v} for v in dict.fromkeys([p[knob], True])] if knob in p else [{}]
    longest = p.get("max_length") or p["sampling"]["max_tokens"]
    budgets = [t for t in (p["tokens_per_microbatch"] >> i for i in range(6)) if t >= longest] or [longest]
    possible = [n for n in range(1, at.devices + 1) if at.devices % n == 0]
    if samplers > 1:  # the machines share the learners equally, and the first has room for the samplers too
        possible = sorted({n * m for m in range(1, at.nodes + 1) if at.nodes % m == 0 for n in range(1, left + 1)})
    for learners in (n for n in possible if n <= rows_of(name, p)):
        for shards in range(1, learners + 1):
            if learners % shards or (shards > 1 and method == "qlora") or (shards > at.each and shards % at.each):
                continue
            for tokens in budgets:
                for again in ways:
                    knobs = {**lora, "tokens_per_microbatch": tokens, **again}
                    total = of_stage(plan, model, shards=shards, samplers=samplers, **knobs)
                    if total <= FREE * at.device.memory:
                        yield Setting(
                            stage=name,
                            method=method,
                            learners=learners,
                            shards=shards,
                            samplers=samplers,
                            knobs=knobs,
                            memory=parts(plan, model, shards=shards, samplers=samplers, **knobs),
                            total=total,
                            time=step(
                                name, {**p, **knobs}, plan.get("needs", ()), model, at, learners, shards, samplers
                            ),
                        )


def smallest(fitting: list[Setting]) -> Setting | None:
    """The setting on the fewest devices; among these the fastest, then the one that changes least."""
    return min(fitting, key=lambda s: (s.learners, round(sum(s.time.values()), 2), s.shards), default=None)


def quickest(fitting: list[Setting]) -> Setting | None:
    """The setting with the fastest step."""
    return min(fitting, key=lambda s: (round(sum(s.time.values()), 2), s.learners, s.shards), default=None)


def rows_of(name: str, p: Mapping[str, Any]) -> int:
    """Rows of a step."""
    rows = {"sft": p.get("rows_per_step", 0), "rl": p.get("prompts_per_step", 0) * p.get("samples_per_prompt", 0)}
    return rows.get(name, 2 * p.get("pairs_per_step", 0))


def step(
    name: str,
    p: Mapping[str, Any],
    needs: Any,
    model: Size,
    at: Machines,
    learners: int,
    shards: int,
    samplers: int = 1,
) -> dict[str, float]:
    """Part of a step -> its seconds, with every row at its maximum length.

    compute  products, forward and backward (6 operations a weight and token, 4 where weights are frozen, 2 more where
             layers are computed again), attention over pairs of tokens, the reference's pass
    waiting  what gathering split weights and summing gradients takes beyond the compute of a micro-batch (all of it, if the
             device does nothing else meanwhile), and the sum of gradients of weights that are whole everywhere
    optimizer  reading and writing weights, gradients and moments
    sampling   of the first process, or of samplers that share the conversations: per token the weights and the cache are
               read once
    """
    each = 2 if p["dtype"] == "bfloat16" else 4
    rate = (at.device.half if each == 2 else at.device.single) * OF_SHEET
    lora = p.get("lora") or {}
    trained = lora["rank"] * model.matrix * model.layers if lora else model.parameters
    longest = p.get("max_length") or p["sampling"]["max_tokens"]
    rows, width = rows_of(name, p), model.heads * model.head_dim
    passes = p.get("epochs", 1)
    again = bool(p.get("gradient_checkpointing"))
    inner = model.parameters - model.root
    weights = ((4 if lora else 6) + 2 * again) * inner + (4 if lora else 6) * model.vocabulary * model.hidden
    pairs = (6 + 2 * again) * model.layers * width * longest  # causal: half of 2 x 2 x 3
    per_token = passes * (weights + pairs) + ("reference" in needs) * 2 * model.parameters
    micro = max(1, math.ceil(rows * longest / p["tokens_per_microbatch"]))
    share = math.ceil(micro / learners) / micro  # share of the step that falls on the busiest process
    compute = rows * longest * per_token * share / rate
    link = at.link(shards) * OF_LINK
    if shards > 1:
        part = (shards - 1) / shards
        sent = (2 * each * (model.parameters + trained * bool(lora)) + 4 * trained) * part
        apart = 2 * 4 * trained / shards / (at.link(learners) * OF_LINK) if learners > shards else 0.0
        moved = passes * math.ceil(micro / learners) * (sent / link + apart)
        waiting = max(0.0, moved - compute) if at.device.overlaps else moved
    else:
        waiting = 2 * 4 * trained * (learners - 1) / learners / (at.link(learners) * OF_LINK) if learners > 1 else 0.0
    out = {
        "compute": compute,
        "waiting": waiting,
        "optimizer": passes * 34 * trained / shards / (at.device.bandwidth * OF_LINK),
    }
    if name == "rl":
        tokens, fast = p["sampling"]["max_tokens"], at.device.bandwidth * OF_LINK
        own = math.ceil(rows / samplers)
        read = model.parameters * each + model.cache(own, tokens // 2, each)
        turn = max(read / fast, 2 * model.parameters * own / rate, model.layers * LAUNCHED)
        out["sampling"] = tokens * turn
        if shards > 1 or samplers > 1:
            # updated weights are sent to the first process, or by it to the samplers
            out["sampling"] += 4 * model.parameters / min(link, NETWORK)
    return out


def work(
    plans: Mapping[str, Mapping[str, Any]], model: Size, tokens: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Stage that trains -> an upper bound of its operations, with every row at its maximum length, or of as many `tokens`
    as are given for the stage. Sampling is converted to comparable operations."""
    out = {}
    for name in TRAINED:
        if name not in plans:
            continue
        p, needs = plans[name]["params"], plans[name].get("needs", ())
        n = rows_of(name, p)
        longest = p.get("max_length") or p["sampling"]["max_tokens"]
        longest = min(longest, (tokens or {}).get(name, longest))
        passes = 3 * p.get("epochs", 1) + ("reference" in needs) + bool(p.get("gradient_checkpointing"))
        if name == "rl":
            passes += LEARNING / SAMPLING
        out[name] = model.work(p["steps"] * n * longest) * passes
    return out


def seconds(
    plans: Mapping[str, Mapping[str, Any]], model: Size, tokens: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Stage that trains -> an upper bound of its seconds on this CPU, by the matrix product measured now; {} if a stage
    is trained elsewhere. Sets torch's threads to those of the run."""
    needed = work(plans, model, tokens)
    if any(plans[n]["params"]["device"] != "cpu" for n in needed):
        return {}
    import torch  # takes a second or two, and only a run from a pretrained model needs it

    from training.learner.profile import reached

    torch.set_num_threads(plans["sft"]["threads"])
    rate = reached("cpu", torch.float32) * LEARNING
    return {n: operations / rate for n, operations in needed.items()}


def warnings(plans: Mapping[str, Mapping[str, Any]], model: Size, free: float) -> list[str]:
    """If the stage that takes most exceeds the free memory, one sentence that says so and what would fit; [] if all
    fit."""
    needed = memory(plans, model)
    name = max(needed, key=lambda n: needed[n], default="")
    if not name or needed[name] <= free:
        return []
    plan = plans[name]
    fewer = max(512, plan["params"]["tokens_per_microbatch"] // 8)
    lora = {"lora": {"rank": RANK}}
    ways = [
        {"gradient_checkpointing": True},
        {"tokens_per_microbatch": fewer},
        {"gradient_checkpointing": True, "tokens_per_microbatch": fewer},
        lora,
        {**lora, "gradient_checkpointing": True, "tokens_per_microbatch": fewer},
        {**lora, "gradient_checkpointing": True, "tokens_per_microbatch": fewer, "dtype": "bfloat16"},
        {
            "lora": {"rank": RANK, "base": "nf4"},
            "gradient_checkpointing": True,
            "tokens_per_microbatch": fewer,
            "dtype": "bfloat16",
        },
    ]
    ways = [w for w in ways if w.keys() <= plan["params"].keys()]
    fits = next((w for w in ways if of_stage(plan, model, **w) <= free), None)
    remedy = (
        " ".join(f"--set {name}.{flag}" for k, v in fits.items() for flag in _flags(k, v))
        + f" takes about {of_stage(plan, model, **fits) / 2**30:.1f}"
        if fits
        else "nothing makes it fit: take a smaller model"
    )
    return [
        f"warning: {name} takes about {needed[name] / 2**30:.1f} GiB with {model.parameters / 1e9:.2f} billion weights, and "
        f"{free / 2**30:.1f} GiB are free: {remedy}"
    ]


def _flags(knob: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{knob}.{k}={v}" for k, v in value.items()]
    return [f"{knob}={str(value).lower() if isinstance(value, bool) else value}"]
