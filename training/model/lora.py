"""Low-rank adapters: W + (alpha / rank) B A, of which A and B alone are trained (Hu et al. 2021, "LoRA", arXiv
2106.09685), by peft.

They are inserted into a model in place, so learner, sampler and attention need no change. A saved model has them merged
into its weights, so the code that loads it (the next stage, transformers, vLLM, `espalier chat`) need not know about
them. With `merge: false` they are also saved beside the merged weights, as peft and vLLM load them: `espalier export
--to adapter`. With `base: nf4` the base is frozen in four bits (`training/model/quantised.py`); the saved model is the
dequantised base with the adapters merged in. A folder of adapters, ours or peft's, can be used like any other model:
`load_model` merges it into the base that it names.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from training.model import quantised

KNOBS = ("rank", "alpha", "modules", "merge", "base")
NAME = "default"
BASE = "base.json"  # file beside adapters of a quantised base: how the base was quantised
ADAPTER = "adapter"  # folder within a saved model that holds the adapters alone


def first_on(lora: Mapping[str, Any], device: str) -> str:
    """The device on which to load a model that `adapt` moves to `device`: a base that will be quantised must not fill
    that device first. Raises ValueError for a base that cannot be quantised."""
    quantised.check(lora.get("base", ""))
    return "cpu" if lora.get("base") else device


def adapt(model: nn.Module, lora: Mapping[str, Any], *, seed: int = 0, device: str = "", name: str = NAME) -> None:
    """Put adapters into `model`, in place, and freeze all else; an empty mapping leaves it as it is. Of several, each has
    a `name` (training/learner/policies.py).

    lora: rank; alpha (default: 2 x rank); modules, the last parts of the names of the linear layers that get an adapter
    (default: all linear layers within the layers; never the head), and of the weights of a mixture's experts, each of
    which gets its own; merge, false to keep the adapters beside the saved model; base, nf4 to quantise all other
    weights of the layers first. B starts as 0, so the model's outputs do not change. A router is not adapted. device:
    where to move the model. Raises ValueError for other keys, a rank below 1 and names that the model does not have.
    """
    if not lora:
        return
    body: Any = model.base_model
    linear = {
        n.removesuffix(".base_layer").rpartition(".")[2]
        for n, m in body.named_modules()
        if isinstance(m, nn.Linear) and ".lora_" not in n
    }
    linear = {x for x in linear if not x.isdigit()}  # a place in a sequence, which blocks of layers have too
    experts = {n.rpartition(".")[2]: n for n, p in body.named_parameters() if p.dim() == 3}
    known = sorted(linear | experts.keys())
    rank, modules = lora.get("rank", 0), list(lora.get("modules") or known)
    if odd := sorted(set(lora) - set(KNOBS)):
        raise ValueError(f"lora has the key {odd[0]!r}: it takes {', '.join(KNOBS)}")
    if not isinstance(rank, int) or rank < 1:
        raise ValueError(
            f"lora.rank is {rank!r}: it must be a whole number of 1 or more, for example 16; leave lora empty to train all weights"
        )
    if odd := sorted(set(modules) - set(known)):
        raise ValueError(
            f"lora.modules names {odd[0]!r}, which no linear layer of a {type(model).__name__} is called; known: {', '.join(known)}"
        )
    if not isinstance(lora.get("merge", True), bool):
        raise ValueError(f"lora.merge is {lora['merge']!r}: it is true (the default) or false")
    quantised.quiet()
    quantised.quantise(model, lora.get("base", ""), device)
    from peft import LoraConfig, inject_adapter_in_model  # imported here: it takes a second, and few runs need it

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        # peft knows an expert's weight by its owner's name too: a linear layer may be called the same
        of_experts = sorted({".".join(experts[m].split(".")[-2:]) for m in modules if m in experts})
        config = LoraConfig(
            r=rank,
            lora_alpha=lora.get("alpha", 2 * rank),
            target_modules=[m for m in modules if m in linear],
            target_parameters=of_experts or None,
            lora_dropout=0.0,
            bias="none",
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Already found a `peft_config`")  # several adapters are wanted here
            inject_adapter_in_model(config, model, adapter_name=name)
    # Of a DeepSeek V3, peft takes gate_proj, up_proj and down_proj for its experts' and leaves dense layers out.
    lost = sorted(set(lora.get("modules") or ()) & linear - set(config.target_modules or ()))
    if lost:
        raise ValueError(
            f"lora.modules names {lost[0]!r}, which peft puts on the experts of a {type(model).__name__} and not on its linear layers of that "
            "name: leave modules out for adapters on attention and experts"
        )
    language_model: Any = model
    language_model.keeps_adapters = not lora.get("merge", True)
    if device:
        model.to(device)


def use(model: nn.Module, name: str | None) -> None:
    """Make the adapters of this name the only active and trainable ones; None: no adapters, only the base."""
    for layer in _layers(model):
        layer.set_adapter([] if name is None else [name])
        layer.enable_adapters(name is not None)


@contextmanager
def by_row(model: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Within the context, row i of a pass over [rows, n] goes through the adapters `names[i]`; the base is computed for
    all rows at once. For inference only."""
    told = {"adapter_names": list(names)}
    hooks = []
    for layer in _layers(model):
        if layer.disable_adapters:
            layer.enable_adapters(True)
        hooks.append(layer.register_forward_pre_hook(lambda _, x, more: (x, {**more, **told}), with_kwargs=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def remove(model: nn.Module, name: str) -> None:
    """Remove the adapters of this name; no adapters are active then."""
    use(model, None)
    for layer in _layers(model):
        if name in layer._all_available_adapter_names():
            layer.delete_adapter(name)
    configs: Any = model.peft_config
    del configs[name]


def weights_of(model: nn.Module, name: str) -> dict[str, nn.Parameter]:
    """The adapters of this name, under the names that they would have if they were the only ones."""
    part = f".{name}."
    return {n.replace(part, "."): p for n, p in model.named_parameters() if ".lora_" in n and part in n}


def _layers(model: nn.Module) -> list[Any]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [m for m in model.modules() if isinstance(m, BaseTunerLayer)]


def adapted(model: nn.Module) -> bool:
    """Whether the model has adapters."""
    return hasattr(model, "peft_config")


def folded(model: nn.Module, adapters: str = NAME) -> dict[str, Tensor]:
    """The weights under their own names with the adapters of that name merged in: those of an equivalent model without
    adapters."""
    packed = {f"{n}.weight".replace(".base_layer", ""): m for n, m in quantised.layers(model)}
    if not adapted(model) and not packed:
        return model.state_dict()
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers: dict[str, Any] = {
        f"{n.replace('.base_layer', '')}.{getattr(m, 'parameter_name', 'weight')}": m
        for n, m in model.named_modules()
        if isinstance(m, BaseTunerLayer)
    }
    out: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        if ".lora_" in name:
            continue
        name = name.replace(".base_layer", "")
        owner, _, last = name.rpartition(".")
        if f"{owner}.weight" in packed:
            if last == "scale":
                continue
            value = packed[name].unpacked() if name in packed else value
        if name in layers:
            value = (value.float() + layers[name].get_delta_weight(adapters).detach().float()).to(value.dtype)
        out[name] = value
    return out


def save_adapters(model: nn.Module, folder: Path, name: str = NAME) -> None:
    """Write the adapters of that name as peft's own folder (adapter_config.json, adapter_model.safetensors), the same bytes
    each time. The base is not named; the caller that passes the folder on says where the base is."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    weights = get_peft_model_state_dict(model, adapter_name=name)
    save_file(
        {f"base_model.model.{name}": t.detach().cpu().contiguous() for name, t in sorted(weights.items())},
        folder / "adapter_model.safetensors",
    )
    configs: Any = model.peft_config
    settings = configs[name].to_dict()
    plain = {k: sorted(v) if isinstance(v, set) else v for k, v in settings.items()}
    plain |= {"base_model_name_or_path": None, "inference_mode": True, "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(
        json.dumps(plain, indent=2, sort_keys=True, default=str) + "\n", encoding="utf-8"
    )
    if any(quantised.layers(model)):
        (folder / BASE).write_text(json.dumps({"quantised": "nf4"}) + "\n", encoding="utf-8")


def load_adapters(model: nn.Module, folder: Path, name: str = NAME) -> None:
    """Put the adapters of a folder (`save_adapters`, or of peft) into the model, in place and under that name, so that
    `use` and `by_row` find them. Raises ValueError for a pickle, and for adapters of another model."""
    from peft import LoraConfig, get_peft_model_state_dict, inject_adapter_in_model, set_peft_model_state_dict

    weights = {n.removeprefix("base_model.model."): w for n, w in _weights(folder).items()}
    config = LoraConfig.from_pretrained(str(folder))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Already found a `peft_config`")  # several are what is wanted
        try:
            inject_adapter_in_model(config, model, adapter_name=name)
            set_peft_model_state_dict(model, dict(weights), adapter_name=name)
        except (RuntimeError, ValueError) as e:
            raise ValueError(f"the adapter {folder} does not fit its base: {str(e).strip().splitlines()[0]}") from e
    if odd := sorted(weights.keys() ^ get_peft_model_state_dict(model, adapter_name=name).keys()):
        raise ValueError(f"the adapter {folder} does not fit its base: {odd[0]} is in one of the two alone")


def _weights(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    file = folder / "adapter_model.safetensors"
    if not file.is_file():
        raise ValueError(f"{folder} has no {file.name} (a .bin file is a pickle and is never loaded: convert it)")
    return load_file(file)


def rounded(model: nn.Module, folder: Path) -> None:
    """Round the weights of a base, in place, as the base of a folder of adapters was rounded, if that was quantised."""
    file = folder / BASE
    if file.is_file():
        quantised.quantise(model, json.loads(file.read_text(encoding="utf-8")).get("quantised", ""))
        quantised.plain(model)


def base_of(path: str | Path) -> str | None:
    """The base of a folder of adapters, as the folder names it; None if the folder is not one of adapters alone.

    Raises ValueError if it names no base."""
    config = Path(path) / "adapter_config.json"
    if not config.is_file() or (config.parent / "config.json").exists():
        return None
    try:
        base = json.loads(config.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except ValueError as e:
        raise ValueError(f"{config} is not JSON ({e}): fetch the adapter again") from e
    if not base:
        raise ValueError(
            f"{config} does not say what the adapter was trained on: write it there as base_model_name_or_path, or export it with "
            "`espalier export MODEL --to adapter OUT --base BASE`"
        )
    beside = config.parent / base
    return str(beside) if beside.is_dir() else str(base)


def with_adapters(model: nn.Module, folder: Path) -> nn.Module:
    """The model with the adapters of a folder merged into its weights. Raises ValueError for a pickle, and for adapters
    of another model."""
    from peft import PeftModel, get_peft_model_state_dict

    weights = _weights(folder)
    rounded(model, folder)
    try:
        adapted = PeftModel.from_pretrained(model, str(folder), adapter_name=NAME)
    except (RuntimeError, ValueError) as e:
        raise ValueError(f"the adapter {folder} does not fit its base: {str(e).strip().splitlines()[0]}") from e
    if odd := sorted(weights.keys() ^ get_peft_model_state_dict(adapted, adapter_name=NAME).keys()):
        raise ValueError(f"the adapter {folder} does not fit its base: {odd[0]} is in one of the two alone")
    return adapted.merge_and_unload()
