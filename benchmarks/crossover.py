"""Which size gains from what: learner steps and sampling from 0.5 million to 600 million parameters against TRL and
transformers: `make bench-crossover`

Random models of the Qwen3 architecture (SIZES; the fourth has the shape of SmolLM2-135M, the last that of Qwen3-0.6B),
the same weights for all. One thread, CPU seconds: other work on the machine takes the clock's. Every measurement is a
process of its own, the providers of a case take turns; a first run is not counted, of the following the least is taken.

sft N       one SFT step over ROWS rows of LENGTH tokens, all trained on, AdamW. Peer: TRL's SFTTrainer on the same rows.
sampling N  PROMPTS prompts of PROMPT tokens, SAMPLES samples each of NEW new tokens at temperature 1, none ends early:
            new tokens per CPU second, prompts included. Peers: transformers.generate, and vLLM's CPU build where it is
            installed.

Providers of ours: `here` is what a user gets; `here, bfloat16` the same with `dtype: bfloat16`; `here, torch alone`
does without compiled code and without the choice of products (training/model/products.py). The limits of the compiled
code (LARGEST in training/model/native) are read off this table. A provider that is not installed, or ends with an
error, is left out, and the run says so. With a GPU (`--device cuda`) the type is bfloat16 everywhere, time is the
clock's, and `here, torch alone` is left out; the sizes are those of ON_GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PICTURE = ROOT / "docs" / "images" / "crossover.svg"
COMMAND = "make bench-crossover"
# name -> vocabulary, hidden, layers, heads, key heads, head size, gates
SIZES = {
    "0.5M": (1024, 128, 2, 4, 2, 32, 384),
    "4M": (4096, 256, 4, 4, 2, 64, 768),
    "30M": (16384, 512, 8, 8, 4, 64, 1024),
    "135M": (49152, 576, 30, 9, 3, 64, 1536),
    "600M": (151936, 1024, 28, 16, 8, 128, 3072),
}
ON_GPU = ("135M", "600M")
ROWS, LENGTH = 4, 128
PROMPTS, PROMPT, SAMPLES, NEW = 8, 64, 4, 16
STEPS = {"0.5M": 6, "4M": 4, "30M": 3}  # counted steps; of larger ones 2, of the largest 1
OURS = ("here", "here, bfloat16", "here, torch alone")
PROVIDERS = {
    "sft": (*OURS, "trl"),
    "sampling": (*OURS, "transformers", "transformers, bfloat16", "vllm", "vllm, bfloat16"),
}


def make(folder: str, size: str) -> int:
    """A random model in `folder`, and how many parameters it has."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    vocabulary, hidden, layers, heads, kv, d, gates = SIZES[size]
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv,
            head_dim=d,
            intermediate_size=gates,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )
    model.save_pretrained(folder)
    return sum(p.numel() for p in model.parameters())


def loaded(folder: str, dtype: str, device: str) -> Any:
    """The model with our attention."""
    import torch
    from transformers import AutoModelForCausalLM

    from training.model.attention import NAME

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation=NAME)
    return model.to(device)


def least(run: Any, times: int, device: str) -> float:
    """Seconds of the quickest of several runs, after one that is not counted: of the processor, or of the clock where a
    GPU works."""
    import torch

    def now() -> float:
        if device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    run()
    out = []
    for _ in range(times):
        began = now()
        run()
        out.append(now() - began)
    return min(out)


def _rows(size: str, n: int, length: int) -> Any:
    import numpy as np

    return np.random.default_rng(0).integers(2, SIZES[size][0], (n, length))


def sft_here(folder: str, size: str, dtype: str, device: str, times: int) -> float:
    import numpy as np

    from training.learner.learner import Learner, Optim, nll
    from training.learner.pack import Row, pack, to

    learner = Learner(loaded(folder, dtype, device), Optim(lr=1e-6, warmup=0))
    batch = to(pack([Row(ids=x, trainable=np.arange(LENGTH) > 0) for x in _rows(size, ROWS, LENGTH)]), device)
    return least(lambda: learner.step(batch, nll), times, device)


def sft_trl(folder: str, size: str, dtype: str, device: str, times: int) -> float:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    # rows come as ids; TRL wants a tokenizer to know what pads
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a")))
    words.pad_token, words.eos_token = "a", "b"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device)
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def now(self) -> float:
            if device == "cpu":
                return time.process_time()
            torch.cuda.synchronize()
            return time.perf_counter()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = self.now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(self.now() - self.began)

    with tempfile.TemporaryDirectory() as scratch:
        args = SFTConfig(
            output_dir=scratch,
            use_cpu=device == "cpu",
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
            max_steps=1 + times,
            learning_rate=1e-6,
            per_device_train_batch_size=ROWS,
            max_length=None,
        )
        data = Dataset.from_list([{"input_ids": x.tolist()} for x in _rows(size, ROWS, LENGTH)])
        SFTTrainer(model, args, train_dataset=data, processing_class=words, callbacks=[Clock()]).train()
    return min(seconds[1:])


def sampling_here(folder: str, size: str, dtype: str, device: str, times: int) -> float:
    from synth.types import Sampling
    from training.rollout.torch_sampler import TorchSampler

    sampler = TorchSampler(loaded(folder, dtype, device), end_id=-1)
    rows = [x for x in _rows(size, PROMPTS, PROMPT) for _ in range(SAMPLES)]
    return least(lambda: sampler.open(rows, range(len(rows))).generate(Sampling(max_tokens=NEW)), times, device)


def sampling_transformers(folder: str, size: str, dtype: str, device: str, times: int) -> float:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval().to(device)
    ids = torch.from_numpy(_rows(size, PROMPTS, PROMPT)).to(device)
    settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "min_new_tokens": NEW, "max_new_tokens": NEW}
    mask = torch.ones_like(ids)
    return least(
        lambda: model.generate(ids, attention_mask=mask, num_return_sequences=SAMPLES, **settings), times, device
    )


def sampling_vllm(folder: str, size: str, dtype: str, device: str, times: int) -> float:
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", DO_NOT_TRACK="1")
    from vllm import LLM, SamplingParams

    engine = LLM(model=folder, skip_tokenizer_init=True, dtype=dtype, enforce_eager=device == "cpu", max_model_len=256)
    params = SamplingParams(
        n=SAMPLES, temperature=1.0, max_tokens=NEW, min_tokens=NEW, ignore_eos=True, detokenize=False
    )
    prompts = [{"prompt_token_ids": x.tolist()} for x in _rows(size, PROMPTS, PROMPT)]
    return least(lambda: engine.generate(prompts, params, use_tqdm=False), times, device)


def measure(kind: str, provider: str, size: str, device: str) -> dict[str, float]:
    """One measurement, in this process."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    name, _, how = provider.partition(", ")
    if how == "torch alone":
        from training.model import products
        from training.model.native.build import turn_off

        turn_off("a benchmark compares")
        products.turn_off()
    dtype = "bfloat16" if how == "bfloat16" or device != "cpu" else "float32"
    times = STEPS.get(size, 1 if size == "600M" else 2) if device == "cpu" else 10
    with tempfile.TemporaryDirectory() as folder:
        n = make(folder, size)
        seconds = globals()[f"{kind}_{name}"](folder, size, dtype, device, times)
    return {"seconds": seconds, "parameters": n}


def results_of(kind: str, size: str, seconds: dict[str, float], n: int, device: str) -> dict[str, Any]:
    """A case in the one shape of all benchmarks."""
    from benchmarks.learner import versions

    tokens = PROMPTS * SAMPLES * NEW
    unit = {"sft": "CPU s", "sampling": "tokens/CPU s"}[kind] if device == "cpu" else {"sft": "s"}.get(kind, "tokens/s")
    of = {p: round(s if kind == "sft" else tokens / s, 4 if kind == "sft" else 1) for p, s in seconds.items()}
    peers = {p: v for p, v in of.items() if p != "here"}
    others = [v for p, v in peers.items() if not p.startswith("here") and not p.endswith("bfloat16")]
    best = (min if kind == "sft" else max)(others) if others else None
    ratio = None if best is None else round(best / of["here"] if kind == "sft" else of["here"] / best, 3)
    return {
        "case": f"{kind} {size}",
        "metric": "step" if kind == "sft" else "tokens",
        "value": of["here"],
        "unit": unit,
        "better": "lower" if kind == "sft" else "higher",
        "low": of["here"],
        "high": of["here"],
        "n": 1,
        "peers": peers,
        "ratio_to_best_peer": ratio,
        "parameters": n,
        "device": device_name(device),
        "versions": versions(),
        "command": COMMAND if device == "cpu" else f"{COMMAND} ARGS='--device cuda'",
    }


def device_name(device: str) -> str:
    import torch

    if device != "cpu":
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    about = {k.strip(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
    half = [f for f in ("amx_bf16", "avx512_bf16") if f in about.get("flags", "").split()]
    return f"one thread of {about.get('model name', 'a CPU')}" + (f" with {half[0]}" if half else "")


def plot(results: list[dict[str, Any]], picture: Path = PICTURE) -> None:
    """Times the best peer, over the parameters, of steps and of sampling."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharex=True)
    for axis, kind in zip(axes, ("sft", "sampling"), strict=True):
        mine = [r for r in results if r["case"].startswith(kind)]
        for p in dict.fromkeys(p for r in mine for p in ("here", *r["peers"])):
            points = [
                (r["parameters"], r["value"] if p == "here" else r["peers"][p])
                for r in mine
                if p == "here" or p in r["peers"]
            ]
            axis.plot(*zip(*points, strict=True), marker="o", label=p)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="parameters",
            title="CPU seconds of an SFT step" if kind == "sft" else "tokens per CPU second",
        )
        axis.legend(fontsize=7)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})
    plt.close(figure)


def child(*args: str) -> dict[str, float] | str:
    from benchmarks.learner import child as started

    os.environ["OMP_NUM_THREADS"] = "1"
    return started(*args, module="benchmarks.crossover")


def main() -> None:
    parser = argparse.ArgumentParser(description="which size gains from what")
    parser.add_argument("--child", nargs="+", help="one measurement: what the benchmark starts for each")
    parser.add_argument("--only", default="", help="measure the cases whose name holds this; the others stay")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder that the results go to; no plot elsewhere"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    if args.child:
        kind, provider, size, device = args.child
        print(json.dumps(measure(kind, provider, size, device)))
        return
    path = args.results / ("crossover.json" if args.device == "cpu" else "crossover-gpu.json")
    known = {r["case"]: r for r in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
    for size in SIZES if args.device == "cpu" else ON_GPU:
        for kind, providers in PROVIDERS.items():
            case = f"{kind} {size}"
            if args.only not in case:
                continue
            seconds: dict[str, float] = {}
            n = 0
            for p in providers:
                if args.device != "cpu" and p != "here" and p.startswith("here") or args.device != "cpu" and "," in p:
                    continue
                out = child(kind, p, size, args.device)
                if isinstance(out, str):
                    print(f"{case}: {p} is left out: {out}", flush=True)
                else:
                    seconds[p], n = out["seconds"], int(out["parameters"])
                    print(f"{case}: {p}: {out['seconds']:.3f} s", flush=True)
            if "here" in seconds:
                known[case] = results_of(kind, size, seconds, n, args.device)
                ordered = [known[f"{k} {s}"] for k in PROVIDERS for s in SIZES if f"{k} {s}" in known]
                path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    if args.device == "cpu" and known and args.results == RESULTS:
        plot([known[f"{k} {s}"] for k in PROVIDERS for s in SIZES if f"{k} {s}" in known])


if __name__ == "__main__":
    main()
