"""vLLM as an `Engine`: in this process (`InProcess`), or behind the port of a separate server (`Server`,
OpenAI-compatible).

Both keep a prefix cache, take weights in place, and return log-probs of the actual sampling distribution (after
temperature, top-k and top-p; for greedy turns those of the model at temperature 1), as `--logprobs-mode
processed_logprobs` does. Entropies are not returned. Seeds are per request.

`ENVIRONMENT` has to be in the environment of the process before vLLM is imported there.
"""

# pyright: reportMissingImports=false
# vLLM, and llvmlite, which comes with numba, are not in every environment.

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import secrets
import shutil
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from synth.types import Sampling
from training.model.lora import NAME, folded, save_adapters
from training.model.remote_code import allowed
from training.rollout.engine import Completion, EngineLost, WrongVersion
from training.rollout.transport import checksum, dtype_name
from training.rollout.vllm_worker import SILENT

WORKER = "training.rollout.vllm_worker.Versioned"
FREE = 5.0  # seconds that a server has to answer a run that ends
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in process: no children that outlive a killed run
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # otherwise it binds the learner's threads to cores too
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",  # the model is a folder
    # otherwise some small operations are compiled, eager or not, which takes a C++ compiler and a minute
    "TORCHDYNAMO_DISABLE": "1",
}
SERVED = {
    **ENVIRONMENT,
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}  # dev mode: its weights can be replaced


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """What the process of a server with these settings needs: SERVED, and that its adapters can be replaced."""
    return {**SERVED, **({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"} if settings.get("enable_lora") else {})}


_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # for which vLLM reserves memory


def settings(
    *, max_length: int, dtype: str = "float32", memory: float = 1.0, rank: int = 0, policies: int = 0, **more: Any
) -> dict[str, Any]:
    """Arguments with which both start vLLM: conversations of at most `max_length` tokens, `memory` GiB for their keys
    and values; rank: the largest of the adapters if only adapters are pushed; policies: how many named sets of adapters
    it holds at once, 0 if they have no names. `more` is added, or replaces them. Raises ValueError for several policies
    with a rank that vLLM has no room for."""
    room = room_for(rank) if policies or rank <= _RANKS[-1] else None
    held = max(policies, 1)
    adapters = (
        {"enable_lora": True, "max_lora_rank": room, "max_loras": held, "max_cpu_loras": held} if rank and room else {}
    )
    return {
        **adapters,
        "max_model_len": max_length,
        "dtype": dtype,
        "kv_cache_memory_bytes": int(memory * 2**30),
        "enforce_eager": True,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "worker_extension_cls": WORKER,
        **more,
    }


def room_for(rank: int) -> int:
    """The least `max_lora_rank` for adapters of this rank. Raises ValueError if vLLM has none."""
    room = next((r for r in _RANKS if r >= rank), None)
    if not room:
        raise ValueError(f"vLLM holds adapters up to rank {_RANKS[-1]}, and a policy has {rank}: set a lower lora.rank")
    return room


def all_known(requested: Sequence[str], policies: Sequence[str]) -> None:
    """Raises ValueError for requests of a policy that the engine has no adapters of."""
    if odd := sorted(set(requested) - set(policies)):
        raise ValueError(f"vLLM was given no adapters of a policy {odd[0]!r}: name it when the engine is made")


def written(model: nn.Module, folder: Path, policy: str) -> tuple[str, int]:
    """Write the adapters of a policy as vLLM reads them; returns their digest, by which a push sees what has changed,
    and their bytes."""
    save_adapters(model, folder, policy)
    file = folder / "adapter_model.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size


@dataclass
class InProcess:
    """vLLM's engine in this process. Raises ValueError if vLLM is not installed.

    folder    a model in Hugging Face layout: its architecture; the weights are pushed before the first turn. For a
              model with adapters, if `settings` reserves memory for them, its weights are the base, and only adapters
              are pushed
    settings  of `vllm.LLM`, as `settings` returns them
    policies  names of the adapters of several policies, if the model holds them (training/learner/policies.py): each
              prompt is then answered by the one that it names, in one batch with the others, and a push sends the
              adapters of those policies that have changed since the last
    pushed    bytes of the last push
    """

    elsewhere: ClassVar[bool] = False

    folder: Path
    settings: Mapping[str, Any]
    policies: Sequence[str] = ()
    llm: Any = field(default=None, init=False)
    held: dict[str, tuple[str, Any]] = field(default_factory=dict, init=False, repr=False)  # digest and request of each
    pushes: int = field(default=0, init=False, repr=False)  # of adapters so far: vLLM tells them apart by number
    pushed: int = field(default=0, init=False)

    def _start(self) -> Any:
        try:
            import vllm
        except ImportError as e:
            raise ValueError(
                f"the engine vllm cannot be imported ({e}): `make engine-cpu`, or on a GPU `pip install -c constraints.txt -e '.[vllm]'`"
            ) from e
        _make_readable()
        threads, set_threads = torch.get_num_threads(), torch.set_num_threads
        with torch.random.fork_rng():
            try:
                # its tokenizer finds stop strings
                return vllm.LLM(model=str(self.folder), trust_remote_code=allowed(self.folder), **self.settings)
            finally:  # on a CPU vLLM replaces this function globally
                torch.set_num_threads = set_threads
                torch.set_num_threads(threads)

    def load(self, model: nn.Module, version: int) -> None:
        if self.llm is None:
            self.llm = self._start()
        if self.settings.get("enable_lora"):
            return self._swap(model, version)
        weights = [(name, tensor.detach()) for name, tensor in folded(model).items()]
        self.pushed = sum(t.numel() * t.element_size() for _, t in weights)
        with _losing():
            self.llm.collective_rpc("espalier_load", kwargs={"version": version, "weights": weights})
            self.llm.reset_prefix_cache()  # drop keys and values of the old weights

    def _swap(self, model: nn.Module, version: int) -> None:
        """Replace the old adapters by those of `model`, of each policy if there are several."""
        from vllm.lora.request import LoRARequest

        self.pushed = 0
        with tempfile.TemporaryDirectory(prefix="espalier-adapter-") as place, _losing():
            for name in self.policies or (NAME,):
                folder = Path(place) / name
                digest, size = written(model, folder, name)
                before, old = self.held.get(name, ("", None))
                if digest == before:
                    continue
                if old is not None:
                    del self.held[name]  # should vLLM die in between
                    self.llm.llm_engine.remove_lora(old.lora_int_id)
                self.pushes += 1
                new = LoRARequest(f"{name}-{self.pushes}", self.pushes, str(folder))
                self.llm.llm_engine.add_lora(new)  # read now, because the folder will be deleted
                self.held[name] = digest, new
                self.pushed += size
            self.llm.collective_rpc("espalier_hold", kwargs={"version": version})
            self.llm.reset_prefix_cache()

    def _asked(self, policies: Sequence[str]) -> Any:
        """The adapters of each request of a batch: one set for all where the policy has no name, None for none."""
        if policies:
            return [self.held[name][1] for name in policies]
        return self.held[NAME][1] if NAME in self.held else None

    def version(self) -> int | None:
        with _losing():
            return self.llm.collective_rpc("espalier_version")[0]

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling,
        end_id: int,
        conversations: Sequence[int],
        policies: Sequence[str] = (),
    ) -> list[Completion | None]:
        from vllm import SamplingParams

        all_known(policies, self.policies)
        parameters = [
            SamplingParams(**request(sampling, seed, end_id), detokenize=bool(sampling.stop)) for seed in seeds
        ]
        with _losing(), torch.random.fork_rng():  # it draws from torch's global generator, which the learner uses
            requests = [{"prompt_token_ids": list(p)} for p in prompts]
            answers = self.llm.generate(requests, parameters, use_tqdm=False, lora_request=self._asked(policies))
        out = []
        for answer in answers:
            (output,) = answer.outputs
            logp = [one[token].logprob for token, one in zip(output.token_ids, output.logprobs, strict=True)]
            out.append(_completion(output.token_ids, logp, output.finish_reason, sampling, end_id))
        return out

    def revive(self) -> None:
        self.close()  # `load` starts another

    def close(self) -> None:
        """Free its memory."""
        self.llm = None
        self.held.clear()
        from vllm.distributed import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()


def _make_readable() -> None:
    """vLLM's CPU build inspects the `__dict__` of every attribute of every module. The library object in llvmlite
    (which comes with numba, which bm25s imports if it is installed) creates attributes on access, so its `__dict__`
    would not be a mapping."""
    with contextlib.suppress(ImportError):
        from llvmlite.binding import ffi

        ffi.lib._fntab["__dict__"] = {}


@contextlib.contextmanager
def _losing():
    """Turns failures of vLLM into EngineLost; errors in the request (ValueError, TypeError) are passed on."""
    from vllm.exceptions import VLLMServerError

    try:
        yield
    except (RuntimeError, AssertionError, OSError, VLLMServerError) as e:
        if "Unsupported" in str(e):  # e.g. on a CPU, head sizes that are not multiples of 32: a retry would fail again
            raise ValueError(
                f"vLLM cannot run this model here ({str(e).splitlines()[0]}): set `engine: {{name: torch}}`, or choose another model"
            ) from e
        raise EngineLost(f"vLLM died ({type(e).__name__}: {(str(e).splitlines() or ['no reason given'])[0]})") from e


def request(sampling: Sampling, seed: int, end_id: int) -> dict[str, Any]:
    """The request to vLLM for one completion: arguments of its `SamplingParams`, which are also the keys of a request
    to its server. Raises ValueError for settings that vLLM handles differently from the sampler of this process."""
    if sampling.choices:
        raise ValueError(
            "vLLM cannot be held to choices: it would spell them in whatever tokens it likes, where the tokenizer's own are meant; set "
            "`engine: {name: torch}`, or ask without choices"
        )
    if sampling.min_p > 0 and sampling.top_p < 1:
        raise ValueError(
            f"vLLM takes top_p of what min_p left, where each is meant of the whole distribution: set top_p = {sampling.top_p} or min_p = "
            f"{sampling.min_p} alone, or `engine: {{name: torch}}`"
        )
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "seed": seed,
        "max_tokens": sampling.max_tokens,
        "stop_token_ids": [end_id, *sampling.stop_ids],
        "stop": list(sampling.stop),
        "ignore_eos": True,
        "logprobs": 0,
        "skip_special_tokens": False,
    }


def _completion(
    ids: Sequence[int], logp: Sequence[float], reason: str | None, sampling: Sampling, end_id: int
) -> Completion | None:
    if reason == "stop":
        stop = "end" if ids[-1] == end_id else "stop_id" if ids[-1] in sampling.stop_ids else "stop_string"
    elif reason == "length":
        stop = "length"
    else:  # aborted
        return None
    return Completion(ids=np.asarray(ids, dtype=np.int64), logp=np.asarray(logp, dtype=np.float32), stop=stop)


@contextlib.contextmanager
def laid(place: Path, weights: Mapping[str, Tensor], version: int) -> Iterator[Path]:
    """Weights as a folder under `place`, for servers to read; it is deleted afterwards.

    Every weight is there by its own name, tied ones too: if the head is not in the file, vLLM's CPU build keeps the
    packed copy of the old weights."""
    folder = place / f"{version}"
    folder.mkdir(parents=True, exist_ok=True)
    copies = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in weights.items()}
    save_file(copies, folder / "model.safetensors")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Sent:
    """What a server says of weights that have arrived whole: their checksum, and the dtype of its model."""

    checksum: str
    dtype: str

    @classmethod
    def of(cls, weights: Mapping[str, Tensor]) -> Sent:
        kinds = Counter(dtype_name(t.dtype) for t in weights.values() if t.is_floating_point())
        return cls(checksum(weights), kinds.most_common(1)[0][0])


def _run_number() -> int:
    """A number of this run, of 31 bits, in the upper half of the version that a server is given."""
    return secrets.randbits(31) << 32


def wait(ask: Callable[[], Any], patience: float) -> None:
    """Asks again while EngineLost is raised. Raises EngineLost after `patience` seconds."""
    until = time.monotonic() + patience
    while True:
        try:
            ask()
            return
        except EngineLost as e:
            if time.monotonic() > until:
                raise EngineLost(f"{e}, and did not come back in {patience:.0f} s") from e
            time.sleep(0.5)


@dataclass(eq=False)
class Server:
    """`vllm serve` in another process on this machine, as `command` starts it. Raises ValueError for an answer that
    vLLM would not give.

    url      up to but without /v1
    weights  a folder that the server can read too, in which weights are put for it
    workers  concurrent requests
    patience seconds to wait for a lost server
    run      what tells the versions of this run from those of another that uses the same server
    """

    elsewhere: ClassVar[bool] = True

    url: str
    weights: Path
    workers: int = 64
    timeout: float = 600.0
    patience: float = 120.0
    run: int = field(default_factory=_run_number)
    name: str = field(default="", init=False)

    def load(self, model: nn.Module, version: int) -> None:
        weights = folded(model)
        with laid(self.weights, weights, version) as folder:
            self.take(version, Sent.of(weights), folder=str(folder))

    def take(self, version: int, sent: Sent, **source: Any) -> None:
        """Have the server load weights, from where `Versioned.espalier_load` is told, as this version. Raises EngineLost if they do not
        arrive, ValueError if others do than were sent, WrongVersion if another run holds the server."""
        self.claim()
        load = {"version": self.run + version, "checksum": sent.checksum, **source}
        for got in self._told_all("espalier_load", load):
            if (got["checksum"], got["dtype"]) != (sent.checksum, sent.dtype):
                raise ValueError(
                    f"the server {self.url} holds other weights than it was sent (checksum {got['checksum']} of a {got['dtype']} model, and "
                    f"{sent.checksum} of {sent.dtype} was sent): is its disk the learner's, and its dtype that of the stage?"
                )
        self._post("/reset_prefix_cache", {})

    def join(self, host: str, port: int, first: int, size: int, backend: str, limit: float, bucket: int) -> None:
        """Have its workers meet the learner (training/rollout/transport.py). Raises EngineLost if they do not."""
        knobs = {"host": host, "port": port, "first": first, "size": size}
        more = {"run": self.run, "backend": backend, "limit": limit, "bucket": bucket}
        self._told_all("espalier_join", {**knobs, **more})

    def _told_all(self, method: str, knobs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What each worker says. Raises EngineLost if one says that it failed."""
        answers = self._rpc_all(method, knobs)
        if failed := [a["failed"] for a in answers if "failed" in a]:
            raise EngineLost(f"the server {self.url} did not get the weights: {failed[0]}")
        return answers

    def swap(self, folders: Iterable[Path], version: int) -> None:
        """Have the server keep the adapters of these folders, each under its folder's name, in place of the earlier
        ones of this run; it is told of those alone that it does not have. Raises ValueError if it refuses them."""
        wanted = {folder.name: folder for folder in folders}
        self.claim()
        self._rpc("espalier_hold", {"version": None})
        there = {m["id"]: m["root"] for m in self._ask("/v1/models")["data"] if m.get("parent")}
        for name, root in there.items():
            if name not in wanted and Path(root).parent == self.weights.absolute():
                self._send("/v1/unload_lora_adapter", {"lora_name": name})
        for name, folder in wanted.items():
            # never with load_inplace: vLLM 0.32 then reads the folder again at every step of every request
            if name not in there:
                self._told({"lora_name": name, "lora_path": str(folder.absolute())})
        self._rpc("espalier_hold", {"version": self.run + version})
        self._post("/reset_prefix_cache", {})

    def _told(self, adapters: Mapping[str, str]) -> None:
        code, text = self._send("/v1/load_lora_adapter", adapters)
        if code == 500 and not self.answers():  # vLLM says 500 of adapters that it does not like, too
            raise EngineLost(f"the server {self.url} failed on {adapters['lora_name']}")
        if code != 200:
            raise ValueError(
                f"the server {self.url} does not take the adapters {adapters['lora_path']} ({code}: {_reason(text)}): was it started as "
                "docs/engines.md says, on a disk that both read?"
            )

    def swaps(self) -> bool:
        """Whether adapters can be exchanged while it runs."""
        return self._send("/v1/load_lora_adapter", {"lora_name": "", "lora_path": ""})[0] != 404

    def claim(self) -> None:
        """Have this run hold the server. Raises WrongVersion if another does."""
        who = f"{socket.gethostname()}:{self.weights.absolute()}"
        if other := self._rpc("espalier_claim", {"run": self.run, "who": who}):
            raise WrongVersion(
                f"another run publishes to the server {self.url} now: that of {other['who']}, heard {other['silent']:.0f} s ago; end that run, "
                f"or give each a server of its own (one that was killed holds it for {SILENT / 60:.0f} minutes, or until the server is started "
                "again)"
            )

    def free(self) -> None:
        """Leave it to other runs, if it answers soon."""
        with contextlib.suppress(EngineLost, ValueError):
            replace(self, timeout=FREE)._rpc("espalier_free", {"run": self.run})

    def version(self) -> int | None:
        """Raises WrongVersion if another run has given the server its weights."""
        reply = self._rpc("espalier_version", {"run": self.run})  # numbers come as texts
        if reply is None:
            return None
        version = int(reply) - self.run
        if not 0 <= version < 1 << 32:
            raise WrongVersion(
                f"the server {self.url} has weights of another run, which was started later or had it before: end that run and start this "
                "one again, which goes on from its last checkpoint, or give each run a server of its own (rl.engine.name)"
            )
        return version

    def about(self) -> dict[str, Any]:
        """What the server says of itself: the `version` of vLLM, and the `dtype`, `vocab_size`, `hidden_size`,
        `num_hidden_layers` and `max_model_len` of its model."""
        return {"version": self._ask("/version")["version"], **self.workers_about()[0]}

    def workers_about(self) -> list[dict[str, Any]]:
        """What each of its workers says of itself."""
        return self._rpc_all("espalier_about", {})

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling,
        end_id: int,
        conversations: Sequence[int],
    ) -> list[Completion | None]:
        def one(prompt: Sequence[int], seed: int) -> Completion | None:
            try:
                return self.completion(prompt, seed, sampling, end_id)
            except EngineLost as e:
                print(f"warning: {e}", file=sys.stderr)
                return None

        self._named()
        with ThreadPoolExecutor(min(self.workers, len(prompts))) as pool:
            return list(pool.map(one, prompts, seeds))

    def completion(
        self, prompt: Sequence[int], seed: int, sampling: Sampling, end_id: int, adapters: str = ""
    ) -> Completion | None:
        """The completion of one prompt, by the adapters of that name or else by the model; None if the server gave it
        up. Raises EngineLost, also if it does not have the adapters: it was started anew."""
        body = {
            "model": adapters or self._named(),
            "prompt": list(prompt),
            "return_token_ids": True,
            **request(sampling, seed, end_id),
        }
        code, text = self._send("/v1/completions", body)
        if code == 404 and adapters:
            raise EngineLost(f"the server {self.url} no longer has the adapters {adapters}")
        choice = self._read("/v1/completions", code, text)["choices"][0]
        return _completion(
            choice["token_ids"], choice["logprobs"]["token_logprobs"], choice["finish_reason"], sampling, end_id
        )

    def answers(self) -> bool:
        """Whether it is there."""
        try:
            self._ask("/health")
        except EngineLost:
            return False
        return True

    def _named(self) -> str:
        if not self.name:
            self.name = self._ask("/v1/models")["data"][0]["id"]
        return self.name

    def revive(self) -> None:
        wait(lambda: self._ask("/health"), self.patience)

    def _rpc(self, method: str, knobs: Mapping[str, Any]) -> Any:
        return self._rpc_all(method, knobs)[0]

    def _rpc_all(self, method: str, knobs: Mapping[str, Any]) -> list[Any]:
        return self._post("/collective_rpc", {"method": method, "kwargs": dict(knobs)})["results"]

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._read(path, *self._send(path, body))

    def _ask(self, path: str) -> Any:
        return self._read(path, *self._send(path))

    def _read(self, path: str, code: int, text: bytes) -> Any:
        """The JSON of an answer. Raises ValueError for a refusal, EngineLost for a failure."""
        if code >= 500:
            raise EngineLost(f"the server {self.url} failed on {path} ({code})")
        if code >= 400:
            raise ValueError(
                f"the server {self.url} refuses {path} ({code}: {_reason(text)}): was it started as docs/engines.md says, with VLLM_SERVER_DEV_MODE=1 "
                f"and --worker-extension-cls {WORKER}?"
            )
        try:
            return json.loads(text) if text.strip() else None
        except json.JSONDecodeError as e:  # cut short
            raise EngineLost(f"the server {self.url} does not answer {path} ({e})") from e

    def _send(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """The status and the text of an answer. Raises EngineLost if there is none."""
        request = urllib.request.Request(
            self.url.rstrip("/") + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as e:
            return e.code, e.read(2000)
        except (OSError, http.client.HTTPException) as e:  # refused, reset, timed out, cut short
            raise EngineLost(f"the server {self.url} does not answer {path} ({e})") from e


def _reason(text: bytes) -> str:
    """What an answer that refuses says: vLLM's own message where it has one."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text)["error"]["message"])
    return text.decode(errors="replace").strip()


def command(folder: Path, port: int, more: Mapping[str, Any]) -> list[str]:
    """The arguments that start a server of a model's folder on this machine's own port, with SERVED in its
    environment."""
    more = {**more, "trust_remote_code": allowed(folder)}
    flags = [f"--{k.replace('_', '-')}" + ("" if v is True else f"={v}") for k, v in more.items() if v is not False]
    return [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(folder),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        *flags,
    ]
