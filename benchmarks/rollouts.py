"""Sampling speed of the in-process sampler against transformers and vLLM, on the same weights and prompts: `make
bench-rollouts`

A tiny Qwen3 (hidden 128, 4 layers, fp32, two threads), temperature 1, every sample exactly as long as asked (no
provider may end early). Cases: 64 prompts of 64 tokens x 8 samples x 64 new tokens; 16 prompts of 512 tokens x 16
samples x 32 new tokens, where a prompt is read once per group. Metric `tokens_per_second`: new tokens by the seconds of
the whole call, prompts included. Peers: `transformers.generate` with num_return_sequences in batches of BATCH rows, and
vLLM's CPU build where it is installed. Each provider is a process of its own, they take turns, TURNS times; the value
is the median of the turns, low and high the least and greatest. `log-prob gap`: largest difference per token between
the sampler's log-probs and the learner's, of the first case; `greedy tokens`: how many of 10,000 greedy tokens are the
learner's own likeliest ones.

`the learner's step, an engine in its process`: the median of STEPS optimizer steps over 16 rows of 128 tokens of that
model, in one process before vLLM starts and after it started, was given the weights and sampled once; and of as many
steps in a second process that slept where the first one started its engine. CPU time tells a step that does more from a
machine that is shared with others. Slower by more than the second process differs from itself, and the engine belongs
into a process of its own (docs/engines.md). `--only learner` measures this case alone and leaves the others as they
were measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.rows import result_row

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COMMAND = "make bench-rollouts"
TURNS, BATCH, VOCABULARY, STEPS = 3, 128, 1536, 20
CASES = {
    "64 prompts of 64 x 8 samples x 64 tokens": (64, 64, 8, 64),
    "16 prompts of 512 x 16 samples x 32 tokens": (16, 512, 16, 32),
}


def make(folder: str) -> None:
    """A random model in `folder`."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            intermediate_size=384,
            max_position_embeddings=1024,
            tie_word_embeddings=False,
            eos_token_id=1,
            pad_token_id=0,
            bos_token_id=None,
        )
    )
    with torch.no_grad():
        model.lm_head.weight.mul_(20)  # sharp enough that a greedy token is no matter of rounding
    model.save_pretrained(folder)


def loaded(folder: str):
    """The model with our attention."""
    import torch
    from transformers import AutoModelForCausalLM

    from training.model.attention import NAME

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=NAME)


def prompts(n: int, length: int) -> list[list[int]]:
    import numpy as np

    return np.random.default_rng(0).integers(2, VOCABULARY, (n, length)).tolist()


def here(folder: str, lengths: list[list[int]], samples: int, new: int):
    import numpy as np

    from synth.types import Sampling
    from training.rollout.torch_sampler import TorchSampler

    sampler = TorchSampler(loaded(folder), end_id=-1)
    rows = [np.array(p) for p in lengths for _ in range(samples)]

    def run() -> int:
        total = 0
        for lo in range(0, len(rows), 512):
            part = rows[lo : lo + 512]
            total += sum(
                len(s.ids) for s in sampler.open(part, range(lo, lo + len(part))).generate(Sampling(max_tokens=new))
            )
        return total

    return run


def transformers(folder: str, lengths: list[list[int]], samples: int, new: int):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    per = max(1, BATCH // samples)

    def run() -> int:
        total = 0
        for lo in range(0, len(lengths), per):
            ids = torch.tensor(lengths[lo : lo + per])
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                num_return_sequences=samples,
                min_new_tokens=new,
                max_new_tokens=new,
            )
            total += out.shape[0] * (out.shape[1] - ids.shape[1])
        return total

    return run


def vllm(folder: str, lengths: list[list[int]], samples: int, new: int):
    os.environ.update(
        VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1"
    )
    from vllm import LLM, SamplingParams

    engine = LLM(model=folder, skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=1024)
    params = SamplingParams(
        n=samples, temperature=1.0, max_tokens=new, min_tokens=new, ignore_eos=True, detokenize=False
    )
    return lambda: sum(
        len(o.token_ids)
        for r in engine.generate([{"prompt_token_ids": p} for p in lengths], params, use_tqdm=False)
        for o in r.outputs
    )


PROVIDERS = {"here": here, "transformers": transformers, "vllm": vllm}


def measure(provider: str, n: int, length: int, samples: int, new: int) -> dict:
    import torch

    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        run = PROVIDERS[provider](folder, prompts(n, length), samples, new)
        run()
        rates = []
        for _ in range(2):
            began = time.perf_counter()
            tokens = run()
            rates.append(tokens / (time.perf_counter() - began))
        assert tokens == n * samples * new, f"{provider} sampled {tokens} tokens and was asked for {n * samples * new}"
        return {"rate": statistics.median(rates)}


def fidelity() -> dict:
    """The largest gap between the sampler's log-probs and the learner's, and how many greedy tokens are the learner's
    likeliest."""
    import numpy as np
    import torch

    from synth.types import Sampling
    from training.learner.learner import Targets, score
    from training.learner.pack import Row, pack
    from training.lm_head.logprob import Asked, Head, fused_stats
    from training.model.model import head_weight
    from training.rollout.torch_sampler import TorchSampler

    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        model = loaded(folder)
    rows = [np.array(p) for p in prompts(64, 64)]

    def batch(sampling):
        samples = TorchSampler(model, end_id=-1).open(rows, range(64)).generate(sampling)
        packed = [
            Row(ids=np.concatenate([p, s.ids]), trainable=np.arange(len(p) + len(s.ids)) >= len(p))
            for p, s in zip(rows, samples, strict=True)
        ]
        return pack(packed), np.concatenate([s.logp for s in samples])

    sampled, logp = batch(Sampling(max_tokens=64))
    gap = float((score(model, sampled).logp[sampled.trainable] - torch.from_numpy(logp)).abs().max())
    greedy, _ = batch(Sampling(temperature=0.0, max_tokens=157))
    with torch.no_grad():
        targets = Targets.of(model, replace(greedy, prefixes=[]))
        best = fused_stats(targets.before, Head(weight=head_weight(model)), targets.ids, Asked(top_k=1)).top_ids[:, 0]
    return {"gap": gap, "equal": int((best == targets.ids)[:10_000].sum())}


def learner(kind: str) -> dict:
    """Seconds of the learner's step before and after vLLM starts in its process (`engine`), or nothing does
    (`alone`)."""
    from training.rollout.vllm_engine import ENVIRONMENT, InProcess, settings

    os.environ.update(ENVIRONMENT)
    import numpy as np
    import torch

    from synth.types import Sampling
    from training.learner.learner import Learner, Optim, nll
    from training.learner.pack import Row, pack
    from training.rollout.engine import EngineSampler

    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        model = loaded(folder)
        taught = Learner(model, Optim(lr=1e-5, warmup=0))
        rows = [np.array(p) for p in prompts(16, 128)]
        batch = pack([Row(ids=x, trainable=np.arange(128) >= 64) for x in rows])

        def steps() -> tuple[float, float]:
            seconds = []
            for _ in range(STEPS):
                began = time.perf_counter(), time.process_time()
                taught.step(batch, nll)
                seconds.append((time.perf_counter() - began[0], time.process_time() - began[1]))
            return tuple(map(statistics.median, zip(*seconds, strict=True)))

        steps()
        before = steps()
        if kind == "engine":
            sampler = EngineSampler(model, 1, InProcess(Path(folder), settings(max_length=256)))
            samples = sampler.open([x[:64] for x in rows], range(16)).generate(Sampling(max_tokens=16))
            assert all(len(s.ids) for s in samples)
        else:
            time.sleep(5)
        after = steps()
        return {
            "before": before[0],
            "after": after[0],
            "cpu": after[1] / before[1],
            "free": [torch.get_num_threads(), len(os.sched_getaffinity(0))],
        }


def beside(turns: int, base: dict) -> list[dict]:
    """The results of the learner's step with an engine in its process; none where vLLM is not installed."""
    from benchmarks.learner import child

    by_kind: dict[str, list[dict]] = {"engine": [], "alone": []}
    for turn in range(turns):
        for kind, runs in by_kind.items():
            out = child("learner", kind, module="benchmarks.rollouts")
            if isinstance(out, str):
                print(f"the learner's step is left out: {out}", flush=True)
                return []
            runs.append(out)
            summary = f"{out['before'] * 1e3:.1f} ms, then {out['after'] * 1e3:.1f} ms, on {out['free'][0]} threads of {out['free'][1]} cores"
            print(f"learner's step, {kind}: turn {turn + 1}: {summary}", flush=True)
    results = []
    for kind, case in (("engine", "an engine in its process"), ("alone", "none")):
        columns = {
            "before": ([1e3 * r["before"] for r in by_kind[kind]], "ms"),
            "after": ([1e3 * r["after"] for r in by_kind[kind]], "ms"),
            "after by before": ([r["after"] / r["before"] for r in by_kind[kind]], ""),
            "the same of CPU time": ([r["cpu"] for r in by_kind[kind]], ""),
        }
        for metric, (values, unit) in columns.items():
            results.append(
                result_row(
                    f"the learner's step, {case}",
                    metric,
                    statistics.median(values),
                    unit,
                    COMMAND,
                    turns,
                    better="lower",
                    low=min(values),
                    high=max(values),
                    **base,
                )
            )
    return results


def main() -> None:
    from benchmarks.learner import child, device, versions

    parser = argparse.ArgumentParser(description="sampling speed")
    parser.add_argument("--child", nargs="+")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--only", choices=["learner"], help="measure this case alone; the results of the others stay")
    args = parser.parse_args()
    if args.child:
        what, *rest = args.child
        print(
            json.dumps(
                fidelity()
                if what == "fidelity"
                else learner(*rest)
                if what == "learner"
                else measure(what, *map(int, rest))
            )
        )
        return
    base = {"device": device(), **versions()}
    path = RESULTS / "rollouts.json"
    if args.only:
        kept = [
            r for r in json.loads(path.read_text(encoding="utf-8")) if not r["case"].startswith("the learner's step")
        ]
        path.write_text(json.dumps(kept + beside(args.turns, base), indent=1) + "\n", encoding="utf-8")
        return
    results = []
    for case, shape in CASES.items():
        rates: dict[str, list[float]] = {p: [] for p in PROVIDERS}
        for turn in range(args.turns):
            for p in list(rates):
                out = child(p, *map(str, shape), module="benchmarks.rollouts")
                if isinstance(out, str):
                    print(f"{case}: {p} is left out: {out}", flush=True)
                    del rates[p]
                else:
                    rates[p].append(out["rate"])
                    print(f"{case}: turn {turn + 1}, {p}: {out['rate']:,.0f} tokens/s", flush=True)
        mid = {p: round(statistics.median(x)) for p, x in rates.items()}
        peers = {p: x for p, x in mid.items() if p != "here"}
        results.append(
            result_row(
                case,
                "tokens_per_second",
                mid["here"],
                "tokens/s",
                COMMAND,
                args.turns,
                low=round(min(rates["here"])),
                high=round(max(rates["here"])),
                peers=peers,
                ratio=round(mid["here"] / max(peers.values()), 3) if peers else None,
                **base,
            )
        )
    out = child("fidelity", module="benchmarks.rollouts")
    if isinstance(out, str):
        raise SystemExit(f"the comparison with the learner failed: {out}")
    for metric, key, unit, better in (
        ("log-prob gap", "gap", "nats", "lower"),
        ("greedy tokens", "equal", "of 10,000", "higher"),
    ):
        case, value = "sampler against learner", out[key]
        results.append(result_row(case, metric, value, unit, COMMAND, 1, better=better, low=value, high=value, **base))
    results += beside(args.turns, base)
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
