"""What each way through a decode step is worth on a CPU, by the size of the model. `make bench-forward-paths`

The same conversations (prompts of 64 tokens, then new ones) by the model's own forward, by `CachedLayers` and, up to
its limit, by `TurnDecoder`, in one process, on one thread, taking turns. CPU seconds, not wall seconds, so that other
work on the machine matters less. Weights are copied at the start of a batch, which counts. TOP_P is a case of its own
because decode.c draws from the whole distribution alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.learner import device, versions

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "forward-paths.json"
COMMAND = "make bench-forward-paths"
# d, layers, rows, new.
SIZES = (
    (96, 4, 64, 64),
    (192, 4, 64, 32),
    (256, 6, 32, 32),
    (384, 8, 32, 32),
    (512, 9, 32, 16),
)
WAYS = ("transformers' forward", "compiled layers", "compiled turns")
TOP_P = 0.9


def model(folder: str, d: int, layers: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from benchmarks.rollouts import loaded

    torch.manual_seed(0)
    sizes = {"hidden_size": d, "intermediate_size": 4 * d, "num_hidden_layers": layers, "vocab_size": 512}
    heads = {"num_attention_heads": d // 32, "num_key_value_heads": max(1, d // 64)}
    LlamaForCausalLM(LlamaConfig(**sizes, **heads, tie_word_embeddings=True)).save_pretrained(folder)
    return loaded(folder)


def rate(network: Any, way: str, rows: int, new: int, top_p: float = 1.0) -> float | None:
    """Tokens per CPU second; None where the way declines."""
    import numpy as np

    from synth.types import Sampling
    from training.rollout.torch_sampler import TorchSampler

    sampler = TorchSampler(network, end_id=-1)
    if way == WAYS[0]:
        sampler._known = True  # as where no copy agrees with the model
    else:
        sampler.sync()
        if way == WAYS[1]:
            sampler.turns = None
        elif sampler.turns is None or top_p < 1:
            return None
    prompts = [(np.arange(64) * 7 + i) % 500 for i in range(rows)]
    begin = time.process_time()
    sampler.open(prompts, range(rows)).generate(Sampling(max_tokens=new, top_p=top_p))
    return rows * new / (time.process_time() - begin)


def measured(repeats: int) -> list[dict]:
    import torch

    torch.set_num_threads(1)
    base = {"device": device(), "versions": versions(), "command": COMMAND, "peers": {}, "ratio_to_best_peer": None}
    out = []
    for d, layers, rows, new in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            network = model(folder, d, layers)
        size = sum(p.numel() for p in network.parameters())
        for label, top_p in (("", 1.0), (f", top-p {TOP_P}", TOP_P)):
            by_way: dict[str, list[float]] = {w: [] for w in WAYS}
            for _ in range(repeats + 1):  # the first warms up
                for way in WAYS:
                    if (tokens := rate(network, way, rows, new, top_p)) is not None:
                        by_way[way].append(tokens)
            for way, rates in by_way.items():
                if kept := rates[1:]:
                    case = f"{size / 1e6:.1f} million parameters{label}"
                    spread = {"low": round(min(kept)), "high": round(max(kept)), "n": len(kept)}
                    value = {"value": round(statistics.median(kept)), "unit": "tokens per CPU second"}
                    out.append({"case": case, "metric": way, **value, "better": "higher", **spread, **base})
                    print(f"{case}: {way}: {value['value']:,} tokens per CPU second", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    rows = measured(parser.parse_args().repeats)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
