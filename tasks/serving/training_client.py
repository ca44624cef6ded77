"""The client of `espalier serve --training`, under the names of Tinker's SDK. It needs only Python, and torch for a
loss of your own.

Every call returns a future at once; calls of one model run in the order in which they were made.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit


class TrainingApiError(RuntimeError):
    """An error that the service returned."""


@dataclass(frozen=True, kw_only=True)
class AdamParams:
    """Of one update. grad_clip_norm 0: gradients are not clipped. Vectors do not decay; adapters have none."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn. stop: a text, texts, or ids; top_k -1: of all."""

    max_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stop: str | Sequence[str] | Sequence[int] | None = None


@dataclass(frozen=True, kw_only=True)
class ModelInput:
    tokens: Sequence[int]

    @staticmethod
    def from_ints(tokens: Sequence[int]) -> ModelInput:
        return ModelInput(tokens=[int(t) for t in tokens])

    def to_ints(self) -> list[int]:
        return list(self.tokens)

    @property
    def length(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, kw_only=True)
class Datum:
    """A sequence without its last token; loss_fn_inputs: per position the token after it (target_tokens) and what the loss
    reads, each a list, an array or a tensor of that length."""

    model_input: ModelInput
    loss_fn_inputs: Mapping[str, Any]

    def wire(self) -> dict[str, Any]:
        inputs = {k: v.tolist() if hasattr(v, "tolist") else list(v) for k, v in self.loss_fn_inputs.items()}
        return {"model_input": {"tokens": list(self.model_input.tokens)}, "loss_fn_inputs": inputs}


@dataclass(frozen=True, kw_only=True)
class ForwardBackwardOutput:
    """loss_fn_outputs: per datum its `logprobs`, one per position; metrics: `loss:sum` and those of the loss."""

    loss_fn_outputs: list[dict[str, list[float]]]
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class SampledSequence:
    tokens: list[int]
    logprobs: list[float]
    stop_reason: str


@dataclass(frozen=True, kw_only=True)
class SampleResponse:
    sequences: list[SampledSequence]


@dataclass(frozen=True, kw_only=True)
class Saved:
    path: str


class _Http:
    """POSTs of JSON to the service."""

    def __init__(self, base_url: str, api_key: str) -> None:
        parts = urlsplit(base_url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}

    def open(self, path: str, body: Mapping[str, Any]) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self.host, self.port)
        try:
            connection.request("POST", f"/api/v1/{path}", json.dumps(body), self.headers)
            response = connection.getresponse()
        except OSError as e:
            connection.close()
            raise TrainingApiError(
                f"nobody answers at http://{self.host}:{self.port} ({e}): start `espalier serve MODEL --training`"
            ) from e
        if response.status != 200:
            message = response.read().decode("utf-8", "replace")
            connection.close()
            try:
                message = json.loads(message)["error"]["message"]
            except (ValueError, KeyError, TypeError):
                pass
            raise TrainingApiError(message.strip())
        return connection, response

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        connection, response = self.open(path, body)
        try:
            return json.loads(response.read())
        finally:
            connection.close()


class ServiceClient:
    """A session with the service. Its models are dropped when it ends, by `close`, at the end of a `with` block, or
    with the process."""

    def __init__(self, base_url: str, api_key: str) -> None:
        self.http = _Http(base_url, api_key)
        self._connection, self._response = self.http.open("create_session", {})
        self.session_id: str = json.loads(self._response.readline())["session_id"]
        self._queues: list[ThreadPoolExecutor] = []

    def create_lora_training_client(
        self,
        base_model: str = "",
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = False,
    ) -> TrainingClient:
        """A new policy: adapters on the base, with alpha 2 x rank. base_model "": the one that is served."""
        lora = {
            "rank": rank,
            "seed": seed,
            "train_mlp": train_mlp,
            "train_attn": train_attn,
            "train_unembed": train_unembed,
        }
        body = {"session_id": self.session_id, "base_model": base_model, "lora_config": lora}
        return TrainingClient(self, self.http.post("create_model", body)["model_id"])

    def create_training_client_from_state(self, path: str) -> TrainingClient:
        """A new policy with the weights of a saved state, and a new optimizer."""
        return self._restored(path, optimizer=False)

    def create_training_client_from_state_with_optimizer(self, path: str) -> TrainingClient:
        """A new policy that goes on from a saved state."""
        return self._restored(path, optimizer=True)

    def create_sampling_client(self, model_path: str | None = None) -> SamplingClient:
        """What samples with the weights of `save_weights_for_sampler`; without them with the base."""
        return SamplingClient(self, model_path)

    def close(self) -> None:
        for queue in self._queues:
            queue.shutdown(wait=True)
        self._response.close()
        self._connection.close()

    def __enter__(self) -> ServiceClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _restored(self, path: str, *, optimizer: bool) -> TrainingClient:
        body = {"session_id": self.session_id, "path": path, "optimizer": optimizer}
        return TrainingClient(self, self.http.post("load_state", body)["model_id"])

    def queue(self) -> ThreadPoolExecutor:
        self._queues.append(ThreadPoolExecutor(max_workers=1))
        return self._queues[-1]


@dataclass
class TrainingClient:
    """One policy."""

    service: ServiceClient
    model_id: str
    _queue: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._queue = self.service.queue()

    def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.service.http.post(path, {"model_id": self.model_id, **body})

    def forward_backward(
        self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Mapping[str, float] | None = None
    ) -> Future[ForwardBackwardOutput]:
        """Add the gradients of a loss, summed over all tokens, to those that wait for `optim_step`."""
        return self._pass("forward_backward", data, loss_fn, loss_fn_config)

    def forward(
        self, data: Sequence[Datum], loss_fn: str, loss_fn_config: Mapping[str, float] | None = None
    ) -> Future[ForwardBackwardOutput]:
        """As `forward_backward`, without gradients."""
        return self._pass("forward", data, loss_fn, loss_fn_config)

    def _pass(
        self, path: str, data: Sequence[Datum], loss_fn: str, config: Mapping[str, float] | None
    ) -> Future[ForwardBackwardOutput]:
        body = {
            "data": [d.wire() for d in data],
            "loss_fn": loss_fn,
            "loss_fn_config": None if config is None else dict(config),
        }
        return self._queue.submit(lambda: ForwardBackwardOutput(**self._ask(path, body)))

    def forward_backward_custom(
        self, data: Sequence[Datum], loss_fn: Callable[[Sequence[Datum], list[Any]], tuple[Any, dict[str, float]]]
    ) -> Future[ForwardBackwardOutput]:
        """A loss of your own of the log-probs: `loss_fn(data, logprobs)` is given a tensor per datum and returns (loss,
        metrics). It costs a forward pass more: its derivative by each log-prob is what a second pass weighs them with."""
        import torch

        def targets(weights: Sequence[Any]) -> list[Datum]:
            return [
                Datum(
                    model_input=d.model_input,
                    loss_fn_inputs={"target_tokens": d.loss_fn_inputs["target_tokens"], "weights": w},
                )
                for d, w in zip(data, weights, strict=True)
            ]

        seen = self.forward(targets([[0.0] * d.model_input.length for d in data]), "cross_entropy").result()
        logprobs = [torch.tensor(o["logprobs"], requires_grad=True) for o in seen.loss_fn_outputs]
        loss, metrics = loss_fn(data, logprobs)
        loss.backward()
        weights = [torch.zeros_like(x) if x.grad is None else -x.grad for x in logprobs]
        done = self.forward_backward(targets(weights), "cross_entropy")
        return self._queue.submit(
            lambda: ForwardBackwardOutput(
                loss_fn_outputs=done.result().loss_fn_outputs, metrics={"loss:sum": float(loss.detach()), **metrics}
            )
        )

    def optim_step(self, adam_params: AdamParams) -> Future[dict[str, Any]]:
        """One update by the gradients that wait."""
        return self._queue.submit(self._ask, "optim_step", {"adam_params": asdict(adam_params)})

    def save_state(self, name: str) -> Future[Saved]:
        """Saves weights and optimizer, from which any session can continue."""
        return self._queue.submit(lambda: Saved(**self._ask("save_state", {"name": name})))

    def save_weights_for_sampler(self, name: str) -> Future[Saved]:
        return self._queue.submit(lambda: Saved(**self._ask("save_weights_for_sampler", {"name": name})))

    def save_weights_and_get_sampling_client(self, name: str) -> SamplingClient:
        return SamplingClient(self.service, self.save_weights_for_sampler(name).result().path)

    def unload(self) -> None:
        """Drops this policy before its session ends."""
        self._queue.submit(self._ask, "unload_model", {}).result()


@dataclass
class SamplingClient:
    """Samples with weights that do not change."""

    service: ServiceClient
    model_path: str | None = None
    _queue: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._queue = self.service.queue()

    def sample(self, prompt: ModelInput, num_samples: int, sampling_params: SamplingParams) -> Future[SampleResponse]:
        """Sequences after a prompt; those of one call are sampled together."""
        body = {
            "session_id": self.service.session_id,
            "model_path": self.model_path,
            "prompt": {"tokens": prompt.to_ints()},
            "num_samples": num_samples,
            "sampling_params": asdict(sampling_params),
        }

        def ask() -> SampleResponse:
            sequences = self.service.http.post("sample", body)["sequences"]
            return SampleResponse(sequences=[SampledSequence(**s) for s in sequences])

        return self._queue.submit(ask)

    def compute_logprobs(self, prompt: ModelInput) -> Future[list[float | None]]:
        """The log-prob of each token at temperature 1, given those before it; None for the first."""
        body = {
            "session_id": self.service.session_id,
            "model_path": self.model_path,
            "prompt": {"tokens": prompt.to_ints()},
            "sampling_params": {"max_tokens": 1},
            "prompt_logprobs": True,
        }
        return self._queue.submit(lambda: self.service.http.post("sample", body)["prompt_logprobs"])
