"""The training API as Tinker's own SDK speaks it (0.38, Apache licence 2.0): its names, its futures that are asked for
again, its binary messages. What is done is `Trainer`'s (training_api.py).

The SDK makes a session, which lives as long as its heartbeats come; every call that takes time gives a future, whose
result `retrieve_future` holds for a while and then says "try again". Calls are done in the order in which they came.
forward_backward is sent, and its result and samples are answered, as protocol buffers (https://protobuf.dev), of which the
few messages that are needed are read and written here.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastapi import Request as Http
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from pydantic import ValidationError

from tasks.core.errors import UserError
from tasks.serving.refusal import Refused

VERSION = "0.38"
SILENCE = 90.0  # seconds without a heartbeat after which a session is over; the SDK sends one every 10
HOLD = 20.0  # seconds that a question for a result is held
RESULTS = 4096  # of a session that are kept, the latest
SDK_ALONE = (  # paths that our own client does not ask for
    *("client/config", "client/dynamic_config", "telemetry", "session_heartbeat", "get_info", "retrieve_future"),
    *("save_weights", "load_weights", "create_sampling_session", "asample"),
)
PREFIX = "tml-"  # that the SDK wants of a key
PROTOCOL_BUFFER = "application/x-protobuf"
_SCHEME = "tinker://"
# What is not there, by the field that asks for it, and the value that asks for nothing.
_LEFT_OUT = {
    "topk_prompt_logprobs": (0,),
    "topk_sample_logprobs": (0,),
    "target_prompt_logprobs": (None,),
    "prompt_alt_tokens_k": (0,),
    "record_stability_info": (None, False),
}


@dataclass
class Client:
    """A session of the SDK: what it is called here, its results, and what its sampling sessions sample with."""

    session: str
    heard: float
    results: dict[str, Future[Any]] = field(default_factory=dict)
    samplers: dict[str, str | None] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)  # the SDK's names for models that it loads -> ours


class Wire:
    """Answers the SDK. trainer: a `Trainer`; kinds: its request bodies by verb (training_api.py)."""

    def __init__(self, trainer: Any, kinds: Mapping[str, type[Any]]) -> None:
        self.trainer, self.kinds = trainer, kinds
        self.clients: dict[str, Client] = {}
        self.work = ThreadPoolExecutor(1, thread_name_prefix="tinker")  # one after another, as they came
        self._watching = False

    # --- sessions

    def begin(self) -> dict[str, Any]:
        name = self.trainer.begin()
        self.clients[name] = Client(name, time.monotonic())
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="heartbeats", daemon=True).start()
        return {"type": "create_session", "session_id": name}

    def beat(self, session: str) -> dict[str, Any]:
        if session not in self.clients:
            raise Refused("this session has ended: open another", status=410)
        self.clients[session].heard = time.monotonic()
        return {"type": "session_heartbeat"}

    def _watch(self) -> None:
        while True:
            time.sleep(min(1.0, SILENCE / 4))
            for name, client in list(self.clients.items()):
                if time.monotonic() - client.heard > SILENCE:
                    del self.clients[name]
                    self.work.submit(self.trainer.end, name)

    def _client(self, session: str) -> Client:
        if session not in self.clients:
            raise Refused("this session has ended, or never existed: open another", status=410)
        return self.clients[session]

    def _of_model(self, model: str) -> tuple[Client, str]:
        """The session of a model, and its name here."""
        for client in self.clients.values():
            name = client.models.get(model, model)
            if name in self.trainer.sessions[client.session].models:
                return client, name
        raise Refused(f"there is no model {model!r}: its session has ended, or it was unloaded", status=404)

    # --- results

    def later(self, client: Client, call: Callable[[], Any]) -> dict[str, Any]:
        """Do it when its turn comes; the request to ask for its result by."""

        def done() -> Any:
            with self.trainer.lock:
                return call()

        name = secrets.token_hex(12)
        client.results[name] = self.work.submit(done)
        for old in list(client.results)[:-RESULTS]:
            del client.results[old]
        return {"request_id": name}

    async def result(self, request: str) -> Response:
        """What came of a request: JSON, or bytes of a protocol buffer."""
        future = next((c.results[request] for c in self.clients.values() if request in c.results), None)
        if future is None:
            raise Refused(f"there is no request {request!r}: its session has ended", status=410)
        try:
            result = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), HOLD)
        except TimeoutError:
            return JSONResponse({"type": "try_again", "request_id": request, "queue_state": "active"})
        except (Refused, ValueError, FloatingPointError, UserError) as e:
            return JSONResponse({"error": str(e).strip().splitlines()[0], "category": "user"})
        return Response(result, media_type=PROTOCOL_BUFFER) if isinstance(result, bytes) else JSONResponse(result)

    def _body(self, verb: str, **fields: Any) -> Any:
        return self.kinds[verb](**fields)

    # --- verbs, each by the body that the SDK sends

    def create_model(self, given: Mapping[str, Any]) -> dict[str, Any]:
        client = self._client(given["session_id"])
        if (kind := (given.get("optimizer_config") or {}).get("type", "adamw")) != "adamw":
            raise Refused(f"the optimizer {kind!r} is not here: adamw is")
        # The SDK asks for adapters of the head by default; what is served has none, and says so (get_info).
        lora = {k: v for k, v in (given.get("lora_config") or {"rank": 32}).items() if k != "train_unembed"}
        body = self._body("create_model", session_id=client.session, base_model=given["base_model"], lora_config=lora)

        def made() -> dict[str, Any]:
            return {"type": "create_model", "model_id": self.trainer.create(body)["model_id"]}

        return self.later(client, made)

    def get_info(self, given: Mapping[str, Any]) -> dict[str, Any]:
        _, name = self._of_model(given["model_id"])
        rank = self.trainer.policies.named[name].lora["rank"]
        model = {"model_name": self.trainer.name, "tokenizer_id": self.trainer.tokenizer}
        about = {"type": "get_info", "model_id": given["model_id"], "model_name": self.trainer.name}
        return {**about, "model_data": model, "is_lora": True, "lora_rank": rank}

    def forward_backward(self, sent: bytes) -> dict[str, Any]:
        model, data, loss, config, forward_only = read_pass(sent)
        client, name = self._of_model(model)
        if odd := next((k for k, v in config.items() if isinstance(v, str)), None):
            raise Refused(f"{loss} has no setting {odd!r} that is a text")
        rows = [
            {"model_input": {"tokens": tokens.tolist()}, "loss_fn_inputs": {k: v.tolist() for k, v in inputs.items()}}
            for tokens, inputs in data
        ]
        verb = "forward" if forward_only else "forward_backward"
        body = self._body(verb, model_id=name, data=rows, loss_fn=loss, loss_fn_config=config or None)

        def made() -> bytes:
            out = getattr(self.trainer, verb)(body)
            # the SDK wants to know how a metric of several calls is put together
            metrics = {
                k if ":" in k else f"{k}:{'max' if k.endswith('_max') else 'mean'}": v
                for k, v in out["metrics"].items()
            }
            return written_pass([x["logprobs"] for x in out["loss_fn_outputs"]], metrics)

        return self.later(client, made)

    def optim_step(self, given: Mapping[str, Any]) -> dict[str, Any]:
        client, name = self._of_model(given["model_id"])
        if "adam_params" not in given:
            raise Refused("the optimizer's settings are none of adamw: send AdamParams")
        body = self._body("optim_step", model_id=name, adam_params=given["adam_params"])

        def made() -> dict[str, Any]:
            return {"metrics": self.trainer.optim_step(body)["metrics"]}

        return self.later(client, made)

    def save_weights(self, given: Mapping[str, Any]) -> dict[str, Any]:
        client, name = self._of_model(given["model_id"])
        state = given.get("path") or f"step-{self.trainer.policies.named[name].learner.step_count}"
        body = self._body("save_state", model_id=name, name=state)

        def made() -> dict[str, Any]:
            model, _, kept = self.trainer.save_state(body)["path"].partition("/")
            return {"type": "save_weights", "path": f"{_SCHEME}{model}/weights/{kept}"}

        return self.later(client, made)

    def load_weights(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get("session_id") is None:
            raise Refused("a state is loaded into a new model: call create_training_client_from_state")
        client = self._client(given["session_id"])
        path = given["path"].removeprefix(_SCHEME).replace("/weights/", "/", 1)
        body = self._body("load_state", session_id=client.session, path=path, optimizer=given["optimizer"])
        model = f"{client.session}:train:{given['model_seq_id']}"  # what the SDK calls it

        def made() -> dict[str, Any]:
            client.models[model] = self.trainer.load_state(body)["model_id"]
            return {"type": "load_weights", "path": given["path"], "model_id": model}

        return self.later(client, made)

    def save_weights_for_sampler(self, given: Mapping[str, Any]) -> dict[str, Any]:
        client, name = self._of_model(given["model_id"])
        kept = given.get("path") or f"session-{given.get('sampling_session_seq_id')}"
        body = self._body("save_weights_for_sampler", model_id=name, name=kept)

        def made() -> dict[str, Any]:
            path = self.trainer.save_weights_for_sampler(body)["path"]
            response: dict[str, Any] = {"type": "save_weights_for_sampler"}
            if given.get("path"):
                return response | {"path": _SCHEME + path.replace("/sampler/", "/sampler_weights/", 1)}
            return response | {"sampling_session_id": self._samples(client, path)}

        return self.later(client, made)

    def create_sampling_session(self, given: Mapping[str, Any]) -> dict[str, Any]:
        client, path = self._client(given["session_id"]), given.get("model_path")
        if path is None and given.get("base_model") not in (None, "", self.trainer.name):
            raise Refused(
                f"the base model {given['base_model']!r} is not served here, {self.trainer.name!r} is", status=404
            )
        if path is not None:
            path = path.removeprefix(_SCHEME).replace("/sampler_weights/", "/sampler/", 1)
        return {"type": "create_sampling_session", "sampling_session_id": self._samples(client, path)}

    def _samples(self, client: Client, path: str | None) -> str:
        name = secrets.token_hex(12)
        client.samplers[name] = path
        return name

    def asample(self, given: Mapping[str, Any]) -> dict[str, Any]:
        session = given.get("sampling_session_id")
        client = next((c for c in self.clients.values() if session in c.samplers), None)
        if client is None or session is None:
            raise Refused("there is no such sampling session: its session has ended", status=404)
        if odd := next((k for k, nothing in _LEFT_OUT.items() if given.get(k) not in (*nothing, None)), None):
            raise Refused(f"{odd} is not answered here: leave it out")
        tokens: list[int] = []
        for chunk in given["prompt"]["chunks"]:
            if chunk.get("type", "encoded_text") != "encoded_text":
                raise Refused(f"a prompt is text here, and this one has a chunk of {chunk['type']}")
            tokens += chunk["tokens"]
        options = {k: v for k, v in given["sampling_params"].items() if v is not None}
        options.setdefault("max_tokens", max(1, self.trainer.context - len(tokens)))
        body = self._body(
            "sample",
            session_id=client.session,
            model_path=client.samplers[session],
            prompt={"tokens": tokens},
            num_samples=given.get("num_samples", 1),
            sampling_params=options,
            prompt_logprobs=bool(given.get("prompt_logprobs")),
            prompt_logprobs_last_n=given.get("prompt_logprobs_last_n"),
        )
        ids = [f"{session}:{given.get('seq_id')}:{k}" for k in range(body.num_samples)]
        return self.later(client, lambda: written_samples(**self.trainer.sample(body))) | {"sample_sequence_ids": ids}

    def unload_model(self, given: Mapping[str, Any]) -> dict[str, Any]:
        client, name = self._of_model(given["model_id"])

        def made() -> dict[str, Any]:
            self.trainer.unload(self._body("unload_model", model_id=name))
            return {"type": "unload_model", "model_id": given["model_id"]}

        return self.later(client, made)

    async def answered(self, path: str, http: Http) -> Response:
        """One request of the SDK."""
        if http.headers.get("content-type", "").startswith(PROTOCOL_BUFFER):
            sent = await http.body()
            return _as_asked("forward_backward", lambda: self.forward_backward(sent))
        try:
            given = await http.json()
        except ValueError as e:
            raise Refused("the body of the request is not JSON") from e
        if path == "retrieve_future":
            return await self.result(str(given.get("request_id")))
        plain: dict[str, Callable[[], dict[str, Any]]] = {
            "client/config": lambda: {"parallel_fwdbwd_chunks": False},
            "client/dynamic_config": dict,
            "telemetry": lambda: {"status": "accepted"},  # and kept nowhere
            "create_session": self.begin,
            "session_heartbeat": lambda: self.beat(given["session_id"]),
        }
        return _as_asked(path, plain[path] if path in plain else lambda: getattr(self, path)(given))


def _as_asked(path: str, call: Callable[[], dict[str, Any]]) -> Response:
    """Raises Refused and RequestValidationError for a body that is none of the SDK's."""
    try:
        return JSONResponse(call())
    except (KeyError, AttributeError, TypeError) as e:
        raise Refused(f"{path} is not asked as the SDK {VERSION} asks it ({type(e).__name__}: {e})") from e
    except ValidationError as e:
        raise RequestValidationError([{**x, "loc": ("body", *x["loc"])} for x in e.errors()]) from e


# --- protocol buffers -------------------------------------------------------------------------------------------------

_TENSORS: dict[int, np.dtype[Any]] = {1: np.dtype("<f4"), 2: np.dtype("<i8"), 3: np.dtype("<i4")}


def fields_of(sent: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a message: an int, a float of 8 bytes, or bytes. Raises Refused."""
    at = 0
    try:
        while at < len(sent):
            key, at = _varint(sent, at)
            kind = key & 7
            if kind == 0:
                value, at = _varint(sent, at)
            elif kind == 1:
                value, at = struct.unpack_from("<d", sent, at)[0], at + 8
            elif kind == 2:
                size, at = _varint(sent, at)
                if at + size > len(sent):
                    raise IndexError
                value, at = sent[at : at + size], at + size
            elif kind == 5:
                value, at = struct.unpack_from("<f", sent, at)[0], at + 4
            else:
                raise IndexError
            yield key >> 3, value
    except (IndexError, struct.error) as e:
        raise Refused("the body is not a whole protocol buffer of forward_backward") from e


def _varint(sent: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = sent[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise IndexError


def _first(sent: bytes, number: int, default: Any) -> Any:
    """A field that is there once: its last value."""
    for field_number, value in fields_of(sent):
        default = value if field_number == number else default
    return default


def _tensor(sent: bytes) -> np.ndarray:
    kind = _first(sent, 3, 0)
    if kind not in _TENSORS or _first(sent, 2, None) is not None:
        raise Refused("an input of a loss is a dense tensor of float32 or int64")
    try:
        return np.frombuffer(_first(sent, 1, b""), dtype=_TENSORS[kind])
    except ValueError as e:
        raise Refused("a tensor has a part of a number at its end") from e


def read_pass(
    sent: bytes,
) -> tuple[str, list[tuple[np.ndarray, dict[str, np.ndarray]]], str, dict[str, float | str], bool]:
    """A ForwardBackwardRequest: (model, [(tokens, inputs of the loss)], loss, its settings, whether forward alone)."""
    model, loss, forward_only = "", "", False
    data: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
    config: dict[str, float | str] = {}
    for number, value in fields_of(sent):
        if number == 1:
            model = value.decode()
        elif number == 3:
            data.append(_datum(value))
        elif number == 4:
            loss = value.decode()
        elif number == 6:
            forward_only = bool(value)
        elif number == 7:
            of = _first(value, 2, b"")
            number_, text = _first(of, 1, None), _first(of, 2, None)
            config[_first(value, 1, b"").decode()] = text.decode() if text is not None else float(number_ or 0.0)
    return model, data, loss, config, forward_only


def _datum(sent: bytes) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    tokens: list[np.ndarray] = []
    inputs: dict[str, np.ndarray] = {}
    for number, value in fields_of(sent):
        if number == 1:
            text = _first(value, 1, None)
            if text is None:
                raise Refused("a model input is text here, and this one has an image or sound")
            tokens.append(np.frombuffer(_first(text, 1, b""), dtype="<i4"))
        elif number == 2:
            inputs[_first(value, 1, b"").decode()] = _tensor(_first(value, 2, b""))
    return np.concatenate(tokens) if tokens else np.zeros(0, dtype=np.int32), inputs


def _number(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _bytes(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value


def _int(number: int, value: int) -> bytes:
    return _number(number << 3) + _number(value)


def written_pass(logprobs: Sequence[Sequence[float]], metrics: Mapping[str, float]) -> bytes:
    """A ForwardBackwardOutput: the log-probs of each datum end to end, with the bytes at which each begins."""
    ends = np.cumsum([0, *(4 * len(x) for x in logprobs)]).astype("<i8").tobytes()
    flat = np.concatenate([np.asarray(x, dtype="<f4") for x in logprobs]).tobytes()
    tensor = _bytes(1, flat) + _bytes(2, ends) + _int(3, 1)
    record = _bytes(1, b"ArrayRecord") + _bytes(2, _bytes(1, b"logprobs") + _bytes(2, tensor)) + _int(3, len(logprobs))
    # the type of a map's value is a double or a float: the SDK's metrics are floats of 8 bytes
    told = b"".join(_bytes(3, _bytes(1, k.encode()) + b"\x11" + struct.pack("<d", v)) for k, v in metrics.items())
    return _bytes(1, b"ArrayRecord") + _bytes(2, record) + told


def written_samples(
    sequences: Sequence[Mapping[str, Any]], prompt_logprobs: Sequence[float | None] | None = None
) -> bytes:
    """A SampleResponse; a token of the prompt without a log-prob has NaN there."""
    read = b"" if prompt_logprobs is None else _bytes(2, np.array(prompt_logprobs, dtype="<f4").tobytes())
    return read + b"".join(
        _bytes(
            1,
            _int(1, int(s["stop_reason"] == "length"))
            + _bytes(2, np.asarray(s["tokens"], dtype="<i4").tobytes())
            + _bytes(3, np.asarray(s["logprobs"], dtype="<f4").tobytes()),
        )
        for s in sequences
    )
