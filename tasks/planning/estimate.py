"""What a run from a pretrained model will take, before anything is loaded: memory of each stage, and time on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.model.size import Size, size_of

TRAINED = ("sft", "reward", "prefer", "rl")
LEARNING, SAMPLING = 0.6, 0.3  # of the operations a second that a large product reaches, measured on SmolLM2
RANK = 16


def size(plans: Mapping[str, Mapping[str, Any]]) -> Size | None:
    """The size of the model that a run starts from; None where it makes its own, or its files are not here."""
    named = (plans.get("sft") or {}).get("params", {}).get("model") or ""
    return size_of(named) if named else None


def memory(plans: Mapping[str, Mapping[str, Any]], model: Size) -> dict[str, float]:
    """Stage that trains -> the bytes that it takes at most."""
    return {n: of_stage(plans[n], model) for n in TRAINED if n in plans and plans[n]["params"].get("steps")}


def of_stage(made: Mapping[str, Any], model: Size, **other: Any) -> float:
    """The bytes of one stage; `other` are knobs in the place of its own."""
    p = {**made["params"], **other}
    each = 2 if p["dtype"] == "bfloat16" else 4
    lora = p.get("lora") or {}
    out = model.training(
        p["tokens_per_microbatch"],
        bytes_each=each,
        lora=lora.get("rank", 0),
        base=lora.get("base", ""),
        checkpointing=p.get("gradient_checkpointing", False),
    )
    if lora.get("base"):
        out = max(out, model.loading(each))
    if "reference" in made.get("needs", ()):
        out += model.parameters * each
    if "prompts_per_step" in p:
        out += model.cache(p["prompts_per_step"] * p["samples_per_prompt"], p["sampling"]["max_tokens"], each)
    return out


def work(plans: Mapping[str, Mapping[str, Any]], model: Size) -> dict[str, float]:
    """Stage that trains -> its operations at most, those of sampling made comparable: every row as long as it may be."""
    out = {}
    for name in TRAINED:
        if name not in plans:
            continue
        p, needs = plans[name]["params"], plans[name].get("needs", ())
        rows = {"sft": p.get("rows_per_step", 0), "rl": p.get("prompts_per_step", 0) * p.get("samples_per_prompt", 0)}
        n = rows.get(name, 2 * p.get("pairs_per_step", 0))
        longest = p.get("max_length") or p["sampling"]["max_tokens"]
        passes = 3 * p.get("epochs", 1) + ("reference" in needs) + bool(p.get("gradient_checkpointing"))
        if name == "rl":
            passes += LEARNING / SAMPLING
        out[name] = model.work(p["steps"] * n * longest) * passes
    return out


def seconds(plans: Mapping[str, Mapping[str, Any]], model: Size) -> dict[str, float]:
    """Stage that trains -> its seconds at most on this CPU, by the product that it reaches now; {} where one is trained
    elsewhere. Sets torch's threads to those of the run."""
    needed = work(plans, model)
    if any(plans[n]["params"]["device"] != "cpu" for n in needed):
        return {}
    import torch  # takes a second or two, and only a run from a pretrained model has to know

    from training.learner.profile import reached

    torch.set_num_threads(plans["sft"]["threads"])
    rate = reached("cpu", torch.float32) * LEARNING
    return {n: operations / rate for n, operations in needed.items()}


def warnings(plans: Mapping[str, Mapping[str, Any]], model: Size, free: float) -> list[str]:
    """A sentence for the stage that takes most, where that is more than is free, with what would fit; [] where all fit."""
    needed = memory(plans, model)
    name = max(needed, key=lambda n: needed[n], default="")
    if not name or needed[name] <= free:
        return []
    made = plans[name]
    fewer = max(512, made["params"]["tokens_per_microbatch"] // 8)
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
    ways = [w for w in ways if w.keys() <= made["params"].keys()]
    fits = next((w for w in ways if of_stage(made, model, **w) <= free), None)
    remedy = (
        " ".join(f"--set {name}.{flag}" for k, v in fits.items() for flag in _flags(k, v))
        + f" takes about {of_stage(made, model, **fits) / 2**30:.1f}"
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
