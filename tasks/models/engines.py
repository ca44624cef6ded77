"""Which engine samples: torch in this process, vLLM in this process, or a vLLM server of this machine (`engine` of the
stages that sample)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError, nearest
from training.rollout.play import Sampler
from training.rollout.torch_sampler import TorchSampler

ENGINES = ("torch", "vllm")


def sampler(
    engine: str,
    model: Any,
    end_id: int,
    *,
    folder: Path,
    work: Path,
    max_length: int,
    dtype: str,
    memory: float,
    rank: int = 0,
) -> Sampler:
    """A sampler of `model`.

    folder      the model that training started from, in Hugging Face layout: an engine reads its architecture there
    work        a folder where weights may be laid for a server
    max_length  tokens of a conversation        memory   GiB for keys and values        dtype   of the engine's weights
    rank        of the model's adapters, where its other weights are those of the folder: adapters alone are then pushed to
                vLLM in this process

    Raises UserError for an engine that is unknown or not installed.
    """
    if engine == "torch":
        return TorchSampler(model, end_id)
    remote = engine.startswith(("http://", "https://"))
    if engine != "vllm" and not remote:
        raise UserError(
            f"there is no engine {engine!r}: {nearest(engine, ENGINES)}, or the URL of a vLLM server (docs/engines.md)"
        )
    from training.rollout.engine import EngineSampler
    from training.rollout.vllm_engine import ENVIRONMENT, InProcess, Server, settings

    if remote:
        return EngineSampler(model, end_id, Server(engine.removesuffix("/").removesuffix("/v1"), work))
    if find_spec("vllm") is None:
        raise UserError(
            "the engine vllm is not installed: on a CPU `make engine-cpu`, on a GPU `pip install -c constraints.txt -e '.[vllm]'`; or set "
            "`engine: {name: torch}`"
        )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    options = settings(max_length=max_length, dtype=dtype, memory=memory, rank=rank)
    return EngineSampler(model, end_id, InProcess(folder, options))
