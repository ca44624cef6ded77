"""What stands in for vLLM's package where it is not installed: `LLM` with a base of its own from a folder, adapters that are
read from folders and told apart by number, and batches whose requests name different ones. It says what the model says."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

from training.learner.learner import token_stats
from training.learner.pack import Row, pack
from training.model.lora import load_adapters, remove, use
from training.model.model import load_model
from training.rollout.vllm_worker import Versioned


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


class VLLMServerError(Exception):
    pass


class LLM:
    made: list["LLM"] = []

    def __init__(self, model, **settings):
        self.model, _ = load_model(model)
        self.settings, self.batches, self.adapters, self.broken = settings, [], {}, False
        self.worker, self.llm_engine = Versioned(), self
        LLM.made.append(self)

    def add_lora(self, request):
        """Raises ValueError where all places are taken, as vLLM would throw out another, and for a number that is taken."""
        if request.lora_int_id in self.adapters or len(self.adapters) == self.settings["max_loras"]:
            raise ValueError("no room for these adapters")
        load_adapters(self.model, Path(request.lora_path), f"n{request.lora_int_id}")
        if max(c.r for c in self.model.peft_config.values()) > self.settings["max_lora_rank"]:
            raise ValueError("a rank above max_lora_rank")
        self.adapters[request.lora_int_id] = request.lora_name

    def remove_lora(self, number):
        del self.adapters[number]
        remove(self.model, f"n{number}")

    def collective_rpc(self, method, kwargs=None):
        return [getattr(self.worker, method)(**(kwargs or {}))]

    def reset_prefix_cache(self):
        pass

    def generate(self, requests, parameters, use_tqdm, lora_request):
        if self.broken:
            raise RuntimeError("out of everything")
        who = lora_request if isinstance(lora_request, list) else [lora_request] * len(requests)
        self.batches.append([w and w.lora_name for w in who])
        return [self._one(r["prompt_token_ids"], p, w) for r, p, w in zip(requests, parameters, who, strict=True)]

    @torch.no_grad()
    def _one(self, prompt, parameters, request):
        if request is not None:
            assert self.adapters[request.lora_int_id] == request.lora_name
        use(self.model, request and f"n{request.lora_int_id}")
        rng, ids, logps = np.random.default_rng(parameters.seed), [], []
        while len(ids) < parameters.max_tokens and not (ids and ids[-1] in parameters.stop_token_ids):
            row = np.array([*prompt, *ids, 0])
            batch = pack([Row(ids=row, trainable=np.arange(len(row)) == len(row) - 1)])
            logp = token_stats(self.model, batch, temperature=parameters.temperature).distribution()[-1].double()
            token = int(min(np.searchsorted(logp.exp().cumsum(0).numpy(), rng.random()), len(logp) - 1))
            ids.append(token)
            logps.append({token: SimpleNamespace(logprob=float(logp[token]))})
        reason = "stop" if ids[-1] in parameters.stop_token_ids else "length"
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=logps, finish_reason=reason)])


def put(monkeypatch):
    """Put it in the place of vLLM for one test."""
    LLM.made.clear()
    parts = {
        "vllm": {"LLM": LLM, "SamplingParams": lambda **p: SimpleNamespace(**p)},
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": LoRARequest},
        "vllm.exceptions": {"VLLMServerError": VLLMServerError},
        "vllm.distributed": {"cleanup_dist_env_and_memory": lambda: None},
    }
    for name, holds in parts.items():
        module = ModuleType(name)
        module.__dict__.update(holds)
        monkeypatch.setitem(sys.modules, name, module)
