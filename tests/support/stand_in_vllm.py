"""What stands in for vLLM's package where it is not installed: `LLM` with a base of its own from a folder, adapters that are
read from folders and told apart by number, and batches whose requests name different ones; and what a server of it does with
adapters (`Adapters`, behind the port of stub_server.py). It says what the model says."""

import json
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
        self.folder, (self.model, _) = model, load_model(model)
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
            greedy = not parameters.temperature
            logp = token_stats(self.model, batch, temperature=parameters.temperature or 1.0).distribution()[-1].double()
            drawn = int(min(np.searchsorted(logp.exp().cumsum(0).numpy(), rng.random()), len(logp) - 1))
            token = int(logp.argmax()) if greedy else drawn
            ids.append(token)
            logps.append({token: SimpleNamespace(logprob=float(logp[token]))})
        reason = "stop" if ids[-1] in parameters.stop_token_ids else "length"
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, logprobs=logps, finish_reason=reason)])


class Adapters:
    """The adapters of `vllm serve`, as version 0.32 keeps them: a name is the number of a request, whose adapters are read
    from its folder wherever they are not among those in memory, of which the one that was used last goes first to go last.
    Unloading forgets the name alone, and a folder of another width is taken."""

    def __init__(self, folder, *, max_loras=2, max_lora_rank=8):
        self.llm = LLM(folder, max_loras=max_loras, max_lora_rank=max_lora_rank)
        self.named, self.count, self.told, self.read = {}, 0, [], 0

    def load(self, lora_name, lora_path):
        """(status, what it says)"""
        if not lora_name or not lora_path:
            return 400, "Both 'lora_name' and 'lora_path' must be provided."
        if lora_name in self.named:
            return 400, f"The lora adapter '{lora_name}' has already been loaded."
        if not (Path(lora_path) / "adapter_config.json").is_file():
            return 404, f"Loading lora {lora_name} failed: No adapter found for <path>"
        rank = json.loads((Path(lora_path) / "adapter_config.json").read_text())["r"]
        if rank > self.llm.settings["max_lora_rank"]:
            return 500, f"LoRA rank {rank} is greater than max_lora_rank {self.llm.settings['max_lora_rank']}."
        self.count += 1
        request = LoRARequest(lora_name, self.count, lora_path)
        self._in_memory(request)
        self.named[lora_name] = request
        self.told.append(lora_name)
        return 200, f"Success: LoRA adapter '{lora_name}' added successfully."

    def unload(self, lora_name):
        if self.named.pop(lora_name, None) is None:
            return 404, f"The lora adapter '{lora_name}' cannot be found."
        return 200, f"Success: LoRA adapter '{lora_name}' removed successfully."

    def turn(self, body):
        """(status, the choice of a completion)"""
        request = self.named.get(body["model"])
        if request is None and body["model"] != "m":
            return 404, f"The model `{body['model']}` does not exist."
        if request is not None:
            self._in_memory(request)
        sampling = SimpleNamespace(**{k: body[k] for k in ("seed", "temperature", "max_tokens", "stop_token_ids")})
        (output,) = self.llm._one(body["prompt"], sampling, request).outputs
        logps = [one[token].logprob for token, one in zip(output.token_ids, output.logprobs, strict=True)]
        return 200, {
            "token_ids": output.token_ids,
            "logprobs": {"token_logprobs": logps},
            "finish_reason": output.finish_reason,
        }

    def _in_memory(self, request):
        held = self.llm.adapters
        if request.lora_int_id in held:
            held[request.lora_int_id] = held.pop(request.lora_int_id)
            return
        if len(held) == self.llm.settings["max_loras"]:
            self.llm.remove_lora(next(iter(held)))
        self.llm.add_lora(request)
        self.read += 1


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
