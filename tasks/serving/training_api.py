"""A training API over `Policies`, in the manner of Tinker's: forward_backward, optim_step, sample, save_state. The loop,
its data and its losses are the client's (`training_client.py`); models, gradients and optimizers are here.

A loss is the sum over tokens that Tinker defines (https://tinker-docs.thinkingmachines.ai/losses): for a mean,
divide the weights or advantages. Each model belongs to the session that made it, and a session lasts as long as the
connection that opened it: a client that dies leaves only its saved states.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from fastapi import FastAPI, Request as Http
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from synth.types import Sampling, seed_for
from tasks.core.errors import UserError
from tasks.core import local
from tasks.serving.api import told
from tasks.serving.refusal import Refused, refusals
from tasks.serving.tinker import PREFIX, PROTOCOL_BUFFER, SDK_ALONE, Wire
from tasks.storage.checkpoint import Checkpoints
from training.learner.learner import Objective, nll, score
from training.learner.pack import Row, pack
from training.learner.policies import Policies, Policy
from training.model.render import Renderer
from training.rl.policy_loss.cispo import cispo
from training.rl.policy_loss.clip import clip
from training.rollout.torch_sampler import TorchSampler
from training.types import Batch, Terms, TokenStats

SNAPSHOTS = 8  # weights for samplers that a model keeps, the latest
_BODY = 64 << 20  # bytes
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_INPUTS = {
    "cross_entropy": ("weights",),
    "importance_sampling": ("logprobs", "advantages"),
    "ppo": ("logprobs", "advantages"),
    "cispo": ("logprobs", "advantages"),
    "gspo": ("sequence_ratio_mask", "logprobs", "advantages"),
    "dro": ("logprobs", "advantages"),
}
_BOUNDS = ("clip_low_threshold", "clip_high_threshold")
# Settings of a loss, with what they are by default; None: it must be given. The bounds of gspo are those of its paper.
_CONFIG: dict[str, dict[str, float | None]] = {
    "ppo": dict(zip(_BOUNDS, (0.8, 1.2), strict=True)),
    "cispo": dict(zip(_BOUNDS, (0.8, 1.2), strict=True)),
    "gspo": dict(zip(_BOUNDS, (1 - 3e-4, 1 + 4e-4), strict=True)),
    "dro": {"beta": None},
}
Loss = Literal["cross_entropy", "importance_sampling", "ppo", "cispo", "gspo", "dro"]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), allow_inf_nan=False)


class Input(_Body):
    tokens: list[int] = Field(min_length=1)


class Datum(_Body):
    """A sequence without its last token, and per position the token after it and what the loss reads."""

    model_input: Input
    loss_fn_inputs: dict[str, list[float]]


class Pass(_Body):
    model_id: str
    data: list[Datum] = Field(min_length=1)
    loss_fn: Loss = "cross_entropy"
    loss_fn_config: dict[str, float] | None = None


class Adam(_Body):
    learning_rate: float = Field(1e-4, ge=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    eps: float = Field(1e-12, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    grad_clip_norm: float = Field(0.0, ge=0)


class Step(_Body):
    model_id: str
    adam_params: Adam


class Lora(_Body):
    rank: int = Field(default=32, ge=1, le=4096)
    seed: int | None = None
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: Literal[False] = False


class Create(_Body):
    session_id: str
    base_model: str = ""
    lora_config: Lora = Lora()


class Named(_Body):
    model_id: str
    name: str


class Restore(_Body):
    session_id: str
    path: str
    optimizer: bool = True


class Model(_Body):
    model_id: str


class Params(_Body):
    max_tokens: int = Field(default=128, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    seed: int | None = None
    stop: str | list[str] | list[int] | None = None


class Sample(_Body):
    session_id: str
    model_path: str | None = None
    prompt: Input
    num_samples: int = Field(1, ge=1, le=256)
    sampling_params: Params = Params()
    prompt_logprobs: bool = False
    prompt_logprobs_last_n: int | None = Field(None, ge=1)


@dataclass
class _Session:
    models: dict[str, Policy] = field(default_factory=dict)
    snapshots: dict[str, tuple[str, dict[str, Tensor]]] = field(default_factory=dict)


class Trainer:
    """What the endpoints do. One call at a time has the model.

    name       by which the base is asked for      states  where saved states lie
    context    tokens of a sequence at most
    tokenizer  where a program of this machine finds the base's tokenizer: its folder, or a name
    """

    def __init__(
        self, model: nn.Module, renderer: Renderer, *, name: str, context: int, states: Path, tokenizer: str = ""
    ) -> None:
        self.policies, self.renderer = Policies(model), renderer
        self.name, self.context, self.states, self.tokenizer = name, context, states, tokenizer or name
        self.sampler = TorchSampler(model, renderer.end_id, renderer=renderer)
        self.sessions: dict[str, _Session] = {}
        self.lock = threading.Lock()
        self.wire: Wire | None = None  # to those who ask with Tinker's SDK

    def begin(self) -> str:
        session = secrets.token_hex(16)
        self.sessions[session] = _Session()
        return session

    def end(self, session: str) -> None:
        """Drops a session with its models and their sampling weights."""
        with self.lock:
            for model in self.sessions.pop(session, _Session()).models:
                self.policies.remove(model)

    def create(self, body: Create) -> dict[str, Any]:
        session = self._session(body.session_id)
        if body.base_model and body.base_model != self.name:
            raise Refused(
                f"the base model {body.base_model!r} is not served here, {self.name!r} is",
                status=404,
                param="base_model",
                code="model_not_found",
            )
        seed = secrets.randbits(31) if body.lora_config.seed is None else body.lora_config.seed
        policy = self._policy(
            session, {"rank": body.lora_config.rank, "modules": self._modules(body.lora_config)}, seed
        )
        return {"model_id": policy.name, "lora_config": {**body.lora_config.model_dump(), "seed": seed}}

    def _modules(self, lora: Lora) -> list[str]:
        """The last names of the linear layers that get adapters."""
        if not (lora.train_attn or lora.train_mlp):
            raise Refused("train_attn and train_mlp are both false: nothing would be trained", param="lora_config")
        body: Any = self.policies.model.base_model
        names = [n.removesuffix(".base_layer") for n, m in body.named_modules() if isinstance(m, nn.Linear)]
        layers = [n for n in names if ".lora_" not in n]
        return sorted({n.rpartition(".")[2] for n in layers if (lora.train_attn if "attn" in n else lora.train_mlp)})

    def _policy(self, session: _Session, lora: Mapping[str, Any], seed: int) -> Policy:
        name = secrets.token_hex(16)
        session.models[name] = self.policies.create(name, lora, seed=seed)
        return session.models[name]

    def forward_backward(self, body: Pass) -> dict[str, Any]:
        """The loss, and the log-prob of each target before the update; gradients are added to those that wait."""
        policy, rows = self._model(body.model_id), self._rows(body)
        batch, heard = pack(rows, device=self.device), []
        objective = _summed(_objective(body), heard)
        with self.policies.using(policy.name):
            stats = policy.learner.forward_backward(batch, objective)
        return _output(rows, torch.cat(heard), {"loss:sum": stats.pop("loss"), **stats})

    def forward(self, body: Pass) -> dict[str, Any]:
        """As `forward_backward`, without gradients."""
        policy, rows = self._model(body.model_id), self._rows(body)
        batch = pack(rows, device=self.device)
        with self.policies.using(policy.name), torch.no_grad():
            stats = score(self.policies.model, batch)
            (term,) = _summed(_objective(body), [])(stats, batch)
        return _output(rows, stats.logp, {"loss:sum": float(term.values.sum())})

    def optim_step(self, body: Step) -> dict[str, Any]:
        policy, adam = self._model(body.model_id), body.adam_params
        with self.policies.using(policy.name):
            metrics = policy.learner.optim_step(
                lr=adam.learning_rate,
                betas=(adam.beta1, adam.beta2),
                eps=adam.eps,
                weight_decay=adam.weight_decay,
                max_grad_norm=adam.grad_clip_norm or math.inf,
            )
        return {"metrics": metrics, "step": policy.learner.step_count}

    def save_state(self, body: Named) -> dict[str, Any]:
        """Adapters and optimizer as a folder of safetensors and JSON. A name is given once."""
        policy = self._model(body.model_id)
        folder = self.states / policy.name / _named(body.name)
        if folder.exists():
            raise Refused(f"there is a state {body.name!r} of this model: give another name", param="name")
        Checkpoints(folder).save(policy.learner.step_count, policy.state())
        return {"path": f"{policy.name}/{body.name}"}

    def load_state(self, body: Restore) -> dict[str, Any]:
        """A new model of this session that continues from a saved state of any session."""
        session, parts = self._session(body.session_id), body.path.split("/")
        if len(parts) != 2 or not all(_NAME.fullmatch(x) for x in parts):
            raise Refused(f"{body.path!r} is not a path that save_state returned", param="path")
        folder = self.states.joinpath(*parts)
        latest = Checkpoints(folder).latest() if folder.is_dir() else None
        if latest is None:
            raise Refused(f"there is no state {body.path!r} here", status=404, param="path")
        policy = self._policy(session, latest[1]["lora"], 0)
        policy.load_state(latest[1], optimizer=body.optimizer)
        return {"model_id": policy.name, "step": policy.learner.step_count}

    def save_weights_for_sampler(self, body: Named) -> dict[str, Any]:
        """Keeps the current weights for `sample`; only the latest few of a model are kept."""
        policy = self._model(body.model_id)
        session = next(s for s in self.sessions.values() if policy.name in s.models)
        path = f"{policy.name}/sampler/{_named(body.name)}"
        session.snapshots.pop(path, None)
        session.snapshots[path] = policy.name, policy.snapshot()
        for old in [p for p, (of, _) in session.snapshots.items() if of == policy.name][:-SNAPSHOTS]:
            del session.snapshots[old]
        return {"path": path}

    def unload(self, body: Model) -> dict[str, Any]:
        policy = self._model(body.model_id)
        for session in self.sessions.values():
            session.models.pop(policy.name, None)
            session.snapshots = {p: s for p, s in session.snapshots.items() if s[0] != policy.name}
        self.policies.remove(policy.name)
        return {}

    def sample(self, body: Sample) -> dict[str, Any]:
        """Sequences after a prompt, with the log-probs of the distribution that they were sampled from; where they are asked for,
        those of the prompt at temperature 1, as the learner reads it: None for the first token, and before the last n."""
        session, options = self._session(body.session_id), body.sampling_params
        if body.model_path is not None and body.model_path not in session.snapshots:
            raise Refused(
                f"there are no weights {body.model_path!r} in this session (the latest {SNAPSHOTS} of a model are kept): call "
                "save_weights_for_sampler",
                status=404,
                param="model_path",
            )
        name, weights = (None, None) if body.model_path is None else session.snapshots[body.model_path]
        prompt = self._ids(body.prompt.tokens, options.max_tokens)
        stops = [options.stop] if isinstance(options.stop, str) else options.stop or []
        try:
            sampling = Sampling(
                temperature=options.temperature,
                top_p=options.top_p,
                top_k=max(options.top_k, 0),
                max_tokens=options.max_tokens,
                stop=tuple(s for s in stops if isinstance(s, str)),
                stop_ids=tuple(s for s in stops if isinstance(s, int)),
            )
        except ValueError as e:
            raise Refused(str(e), param="sampling_params") from e
        seed = secrets.randbits(63) if options.seed is None else options.seed
        with self.policies.using(name, weights):
            seeds = [seed_for(seed, "sample", k) for k in range(body.num_samples)]
            segments = self.sampler.open([prompt] * body.num_samples, seeds).generate(sampling)
            read = self._read_logprobs(prompt, body.prompt_logprobs_last_n) if body.prompt_logprobs else None
        out = {} if read is None else {"prompt_logprobs": read}
        return out | {
            "sequences": [
                {
                    "tokens": s.ids.tolist(),
                    "logprobs": [] if s.logp is None else s.logp.tolist(),
                    "stop_reason": "length" if s.stop == "length" else "stop",
                }
                for s in segments
            ]
        }

    def _read_logprobs(self, ids: np.ndarray, last: int | None) -> list[float | None]:
        if last is not None and last >= len(ids):
            raise Refused(
                f"the last {last} of {len(ids)} tokens: nothing is known of the first, so give {len(ids) - 1} at most",
                param="prompt_logprobs_last_n",
            )
        batch = pack([Row(ids=ids, trainable=np.ones(len(ids), dtype=bool))], device=self.device)
        with torch.no_grad():
            logp = score(self.policies.model, batch).logp.float().tolist()
        skipped = len(ids) - last if last else 1
        unknown: list[float | None] = [None] * skipped
        return unknown + logp[skipped:]

    @property
    def device(self) -> str:
        return str(next(self.policies.model.parameters()).device)

    def _session(self, session: str) -> _Session:
        if session not in self.sessions:
            raise Refused("this session has ended, or never existed: open another", status=404, param="session_id")
        return self.sessions[session]

    def _model(self, model: str) -> Policy:
        """The id is as hard to guess as a key, and only the session that made the model knows it."""
        if model not in self.policies.named:
            raise Refused(
                f"there is no model {model!r}: its session has ended, or it was unloaded", status=404, param="model_id"
            )
        return self.policies.named[model]

    def _ids(self, tokens: Sequence[int], more: int) -> np.ndarray:
        most = len(self.renderer.tokenizer)
        wrong = next((i for i in tokens if not 0 <= i < most), None)
        if wrong is not None:
            raise Refused(f"there is the id {wrong}, and this tokenizer knows 0 to {most - 1}", param="tokens")
        if len(tokens) + more > self.context:
            raise Refused(
                f"{len(tokens)} tokens and {more} after them are more than the {self.context} of this model's context",
                code="context_length_exceeded",
            )
        return np.asarray(tokens, dtype=np.int64)

    def _rows(self, body: Pass) -> list[Row]:
        """One for each datum. Raises Refused for one that is not as the loss wants it."""
        wanted = ("target_tokens", *_INPUTS[body.loss_fn])
        rows = []
        for i, datum in enumerate(body.data):
            given, tokens = datum.loss_fn_inputs, datum.model_input.tokens
            if given.keys() != set(wanted):
                raise Refused(
                    f"data.{i}: {body.loss_fn} reads {', '.join(wanted)}, and was given {', '.join(sorted(given)) or 'nothing'}",
                    param="loss_fn_inputs",
                )
            if odd := [k for k, v in given.items() if len(v) != len(tokens)]:
                raise Refused(
                    f"data.{i}: {odd[0]} has {len(given[odd[0]])} values for {len(tokens)} tokens",
                    param="loss_fn_inputs",
                )
            if not any(given.get("sequence_ratio_mask", (1.0,))):
                raise Refused(f"data.{i}: sequence_ratio_mask marks no token", param="loss_fn_inputs")
            targets = [int(t) for t in given["target_tokens"]]
            counts = given[_INPUTS[body.loss_fn][-1]]  # weights or advantages
            if any(a != b and w for a, b, w in zip(targets, tokens[1:], counts, strict=False)):
                raise Refused(
                    f"data.{i}: target_tokens must be the tokens moved by one where weight or advantage is not 0: the model "
                    "input is a sequence without its last token, the targets are the same without its first",
                    param="loss_fn_inputs",
                )
            ids = self._ids([*tokens, targets[-1]], 0)
            columns = {k: np.array([0.0, *given[k]], dtype=np.float32) for k in _INPUTS[body.loss_fn]}
            rows.append(Row(ids=ids, trainable=np.ones(len(ids), dtype=bool), columns=columns))
        return rows


def _objective(body: Pass) -> Callable[[TokenStats, Batch], Terms]:
    """The project's own loss of that name. Raises Refused for an unknown setting."""
    known, given = _CONFIG.get(body.loss_fn, {}), body.loss_fn_config or {}
    if odd := sorted(given.keys() - known.keys()):
        raise Refused(
            f"{body.loss_fn} has no setting {odd[0]!r}: it takes {', '.join(known) or 'none'}", param="loss_fn_config"
        )
    config = {k: v for k, v in {**known, **given}.items() if v is not None}
    if missing := sorted(known.keys() - config.keys()):
        raise Refused(f"{body.loss_fn} needs loss_fn_config with {missing[0]}", param="loss_fn_config")
    low, high = (config.get(k, 1.0) for k in _BOUNDS)
    if not 0 <= low <= 1 <= high:
        raise Refused(f"the ratio is held between {low} and {high}: the bounds must hold 1", param="loss_fn_config")

    def supervised(stats: TokenStats, batch: Batch) -> Terms:
        columns = {"loss_weight": batch.columns["weights"]}
        return nll(stats, replace(batch, columns=columns, per={"loss_weight": "token"}))[0]

    def reinforced(stats: TokenStats, batch: Batch) -> Terms:
        advantages, ratio = batch.columns["advantages"], stats.logp - batch.columns["logprobs"]
        if body.loss_fn == "dro":  # Richemond et al. 2024 (arXiv 2405.19107)
            return Terms(values=config["beta"] / 2 * ratio**2 - stats.logp * advantages, denominator="constant")
        if body.loss_fn == "cispo":
            return cispo(ratio, advantages, stats, batch, low=low, high=high)
        if body.loss_fn == "gspo":
            ratio = _of_sequence(ratio, batch)
        if body.loss_fn in ("ppo", "gspo"):
            return clip(ratio, advantages, stats, batch, clip_low=1 - low, clip_high=high - 1)
        return clip(ratio, advantages, stats, batch, clip_low=math.inf, clip_high=math.inf)

    return supervised if body.loss_fn == "cross_entropy" else reinforced


def _of_sequence(ratio: Tensor, batch: Batch) -> Tensor:
    """Log-ratio of GSPO-token (Zheng et al. 2025, arXiv 2507.18071, section 4.3): the value is the mean over the tokens
    that sequence_ratio_mask marks, the gradient that of the token's own log-prob."""
    marked = (batch.columns["sequence_ratio_mask"] != 0).to(ratio.dtype)
    mean = batch.row_sum(ratio.detach() * marked) / batch.row_sum(marked)
    return batch.per_token(mean) + ratio - ratio.detach()


def _summed(loss: Callable[[TokenStats, Batch], Terms], heard: list[Tensor]) -> Objective:
    """The plain sum of a loss's values over all tokens; the log-probs that it saw go to `heard`, in the order of rows."""

    def objective(stats: TokenStats, batch: Batch) -> list[Terms]:
        heard.append(stats.logp.detach())
        return [replace(loss(stats, batch), denominator="constant")]

    return objective


def _output(rows: Sequence[Row], logp: Tensor, metrics: Mapping[str, float]) -> dict[str, Any]:
    parts = np.split(logp.float().cpu().numpy(), np.cumsum([len(r.ids) for r in rows])[:-1])
    return {"loss_fn_outputs": [{"logprobs": x[1:].tolist()} for x in parts], "metrics": dict(metrics)}


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Refused(
            f"{name!r} cannot be a name: up to 64 letters, digits, dots, underscores and hyphens, no dot at the start",
            param="name",
        )
    return name


async def _done(trainer: Trainer, call: Callable[[Any], dict[str, Any]], body: Any) -> dict[str, Any]:
    def locked() -> dict[str, Any]:
        with trainer.lock:
            try:
                return call(body)
            except (ValueError, FloatingPointError, UserError) as e:
                raise Refused(str(e).strip().splitlines()[0]) from e

    return await asyncio.to_thread(locked)


async def _read(http: Http) -> Any:
    """The body of a request as JSON. Raises Refused."""
    try:
        return await http.json()
    except ValueError as e:
        raise Refused("the body of the request is not JSON") from e


def _checked(kind: type[_Body], given: Any) -> Any:
    """Raises RequestValidationError."""
    try:
        return kind.model_validate(given)
    except ValidationError as e:
        raise RequestValidationError([{**x, "loc": ("body", *x["loc"])} for x in e.errors()]) from e


def application(trainer: Trainer) -> FastAPI:
    """The endpoints, without a guard."""
    app = FastAPI(title="espalier serve --training", docs_url=None, redoc_url=None, openapi_url=None)

    verbs: dict[str, tuple[type[_Body], Callable[[Any], dict[str, Any]]]] = {
        "create_model": (Create, trainer.create),
        "unload_model": (Model, trainer.unload),
        "forward": (Pass, trainer.forward),
        "forward_backward": (Pass, trainer.forward_backward),
        "optim_step": (Step, trainer.optim_step),
        "save_state": (Named, trainer.save_state),
        "load_state": (Restore, trainer.load_state),
        "save_weights_for_sampler": (Named, trainer.save_weights_for_sampler),
        "sample": (Sample, trainer.sample),
    }

    wire = trainer.wire = Wire(trainer, {verb: kind for verb, (kind, _) in verbs.items()})

    async def answer(verb: str, http: Http) -> Any:
        """A request of our client, or of Tinker's SDK, which sends no JSON or names its type."""
        kind, call = verbs[verb]
        if http.headers.get("content-type", "").startswith(PROTOCOL_BUFFER):
            return await wire.answered(verb, http)
        given = await _read(http)
        if isinstance(given, dict) and "type" in given:
            return await wire.answered(verb, http)
        return await _done(trainer, call, _checked(kind, given))

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/api/v1/get_server_capabilities")
    async def capabilities() -> dict[str, Any]:
        model = {"model_name": trainer.name, "max_context_length": trainer.context}
        return {"supported_models": [model], "loss_fns": list(_INPUTS)}

    @app.post("/api/v1/create_session", response_model=None)
    async def session(http: Http) -> Any:
        if "sdk_version" in (await _read(http) or {}):
            return await wire.answered("create_session", http)

        async def open_until_left() -> AsyncIterator[str]:
            name = trainer.begin()
            try:
                yield json.dumps({"session_id": name}) + "\n"
                while not await http.is_disconnected():
                    await asyncio.sleep(0.2)
            finally:
                threading.Thread(target=trainer.end, args=(name,), name="end of a session").start()

        return StreamingResponse(open_until_left(), media_type="application/x-ndjson")

    for verb in verbs:
        app.post(f"/api/v1/{verb}", response_model=None)(_taking(answer, verb))
    for path in SDK_ALONE:
        app.post(f"/api/v1/{path}", response_model=None)(_taking(wire.answered, path))

    refusals(app, f"there are create_session, get_server_capabilities, {', '.join(verbs)} in /api/v1 here")
    return app


def _taking(call: Callable[[str, Http], Any], name: str) -> Callable[..., Any]:
    async def answer(http: Http) -> Any:
        return await call(name, http)

    return answer


def guarded(trainer: Trainer, key: str) -> local.Asgi:
    """The endpoints, for clients on this machine that know the key. Tinker's SDK shows it with its own prefix, in a
    header of its own."""
    app = local.Guard(application(trainer), token=key, max_body=_BODY, told=told)  # type: ignore[arg-type]

    async def shown(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"x-api-key", b"")
            if given.startswith(PREFIX.encode()):
                bearer = (b"authorization", b"Bearer " + given.removeprefix(PREFIX.encode()))
                scope = {**scope, "headers": [*scope["headers"], bearer]}
        await app(scope, receive, send)

    shown.token = key  # type: ignore[attr-defined]
    return shown
