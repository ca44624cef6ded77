"""Which engine samples: torch in this process, vLLM in this process, or vLLM servers of this machine, which run already
or are started here (`engine` and `samplers` of the stages that sample)."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError, nearest
from tasks.models.beforehand import INSTALLED
from tasks.runtime import process
from training.rollout.play import Sampler
from training.rollout.torch_sampler import TorchSampler

ENGINES = ("torch", "vllm")
START = 600.0  # seconds that a server has to load its model


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
    policies: tuple[str, ...] = (),
    samplers: int = 1,
    devices: tuple[int, ...] = (),
    transport: str = "disk",
    device: str = "cpu",
) -> Sampler:
    """A sampler of `model`.

    folder      the model that training started from, in Hugging Face layout: an engine reads its architecture there
    work        a folder where weights may be laid for a server
    max_length  tokens of a conversation        memory   GiB for keys and values        dtype   of the engine's weights
    rank        of the model's adapters (the largest of several policies), where its other weights are those of the folder:
                adapters alone are then pushed to vLLM in this process
    policies    the names of the adapters, if several policies share the model: they alone are pushed to servers too
    samplers    servers of `vllm` to start on this machine; 1: in this process
    devices     the CUDA device of each of them; empty: on the CPU
    transport   how weights reach servers: disk, nccl or ipc (training/rollout/publisher.py)
    device      of the model

    Raises UserError for an engine that is unknown or not installed, for conversations that are longer than vLLM reads, and
    for a server that does not start, does not answer, runs another model, has no room for the policies, or is not reached by the
    transport.
    """
    if engine == "torch":
        return TorchSampler(model, end_id)
    remote = engine.startswith(("http://", "https://"))
    if engine != "vllm" and not remote:
        raise UserError(
            f"there is no engine {engine!r}: {nearest(engine, ENGINES)}, or the URL of a vLLM server (docs/engines.md)"
        )
    from training.rollout.engine import EngineSampler
    from training.rollout.publisher import Publisher
    from training.rollout.vllm_engine import ENVIRONMENT, InProcess, Server, settings

    if remote:
        urls = [u.strip().removesuffix("/").removesuffix("/v1") for u in engine.split(",")]
        if len(set(urls)) < len(urls):
            raise UserError(f"the engine {engine} names a server twice: name each once")
        servers = [Server(u, work) for u in urls]
        publisher = Publisher(transport, device, work)
        together = _together(servers, model, dtype, max_length, policies, rank, publisher, folder)
        for server in servers:
            atexit.register(server.free)  # the next run need not wait
        return EngineSampler(model, end_id, together)
    if find_spec("vllm") is None:
        raise UserError(f"the engine vllm is not installed: {INSTALLED}; or set `engine: {{name: torch}}`")
    most = getattr(model.config.get_text_config(), "max_position_embeddings", max_length)
    if most < max_length:
        raise UserError(
            f"the engine vllm reads at most the {most} positions of this model, and a conversation may have {max_length} tokens: lower "
            "sampling.max_tokens, or set `engine: {name: torch}`"
        )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        options = settings(
            max_length=max_length,
            dtype=dtype,
            memory=memory,
            rank=0 if samplers > 1 and not policies else rank,
            policies=len(policies),
        )
    except ValueError as e:
        raise UserError(f"rl.policies: {e}, or engine.name=torch") from e
    if samplers > 1:
        servers = [server for server, _ in started(folder, samplers, options, work, devices)]
        publisher = Publisher(transport, device, work)
        together = _together(servers, model, dtype, max_length, policies, rank, publisher)
        return EngineSampler(model, end_id, together)
    return EngineSampler(model, end_id, InProcess(folder, options, policies))


def devices_for(samplers: int, device: str, learners: int) -> tuple[int, ...]:
    """The CUDA devices of servers that a stage starts: those after its learners'. None on the CPU, and none for the
    engine of this process. Raises UserError if the machine has too few."""
    if samplers == 1 or not device.startswith("cuda"):
        return ()
    import torch

    if (here := torch.cuda.device_count()) < learners + samplers:
        raise UserError(
            f"rl: {learners} learners and {samplers} samplers take {learners + samplers} devices, and this machine has "
            f"{here}: lower learners or samplers"
        )
    return tuple(range(learners, learners + samplers))


def _together(
    servers: list[Any],
    model: Any,
    dtype: str,
    max_length: int,
    policies: tuple[str, ...] = (),
    rank: int = 0,
    publisher: Any = None,
    folder: Path | None = None,
) -> Any:
    """One engine of servers that all run what is wanted, and that the weights reach. folder: a model with the policy's tokenizer. Raises
    UserError for one that does not."""
    from training.rollout.engine import EngineLost, WrongVersion
    from training.model.model import load_tokenizer
    from training.rollout.servers import Servers, agree
    from training.rollout.transport import token_digest

    shape = model.config.get_text_config()
    wanted = {k: getattr(shape, k) for k in ("vocab_size", "hidden_size", "num_hidden_layers")}
    try:
        tokens = "" if folder is None else token_digest(load_tokenizer(folder))
        agree(servers, {"dtype": dtype, **wanted}, max_length, policies=len(policies), rank=rank, tokenizer=tokens)
        together = Servers(servers, policies, publisher)
        if publisher is not None:
            publisher.fit(servers)
    except (EngineLost, WrongVersion, ValueError) as e:
        raise UserError(f"rl.engine: {e}") from e
    return together


def started(
    folder: Path, n: int, options: Mapping[str, Any], work: Path, devices: tuple[int, ...] = ()
) -> list[tuple[Any, subprocess.Popen[bytes]]]:
    """Starts `n` vLLM servers of a model's folder on free ports of this machine, and waits until all answer. Returns
    each with its process, which leads a group of its own and ends with this process. Their logs are work/server-K.log. Raises UserError if one does not start."""
    from training.rollout.vllm_engine import Server, command, environment

    work.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:  # all ports are held until all are known, so that no two are the same
        ports = [stack.enter_context(socket.socket()) for _ in range(n)]
        for port in ports:
            port.bind(("127.0.0.1", 0))
        numbers = [port.getsockname()[1] for port in ports]
    servers, children = [], []
    for k, number in enumerate(numbers):
        own = {"CUDA_VISIBLE_DEVICES": str(devices[k])} if devices else {}
        start = process.ending_with_us(*command(folder, number, options)[2:])
        with (work / f"server-{k}.log").open("wb") as log:
            child = subprocess.Popen(
                start, env={**os.environ, **environment(options), **own}, stdout=log, stderr=log, start_new_session=True
            )
        atexit.register(process.end_group, child.pid)
        children.append(child)
        servers.append(Server(f"http://127.0.0.1:{number}", work))
    until = time.monotonic() + START
    for k, (server, child) in enumerate(zip(servers, children, strict=True)):
        while not server.answers():
            if child.poll() is not None or time.monotonic() > until:
                lines = (work / f"server-{k}.log").read_text(errors="replace").strip().splitlines() or ["nothing"]
                raise UserError(
                    f"a vLLM server did not start; the last that it said: {lines[-1]} ({work}/server-{k}.log)"
                )
            time.sleep(0.2)
    return list(zip(servers, children, strict=True))
