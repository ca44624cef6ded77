"""The learner step against its peers, on the same inputs and machine, in turns: `make bench-learner`

Head: hidden states [N, d], weight [V, d], targets, behaviour log-probs and credits in; the loss of a clipped policy gradient and the
gradients of hidden states and weight out. Cases `head N x d x V`; metric `seconds`, and `extra_mb`: the peak memory of a process of its
own (large blocks returned as they are freed) minus what inputs and both gradients take. Peers: the naive way (all logits, log_softmax,
autograd), the same through torch.compile, TRL's chunked head, Liger's fused linear scaled cross entropy (on a CPU that is its own
fallback) and its GRPO loss (one advantage per sequence of N/8 rows, as Liger wants it; not compiled), verl's FusedLinearForPPO (its file
alone: `pip install --no-deps verl`), torch's F.linear_cross_entropy. Cases `dpo head`: the loss of N/16 pairs instead, peers the naive way
and Liger's DPO loss. QuACK's cross entropy runs on CUDA alone. `error` is the relative error of dH and dW against float64 on 256 rows.

Whole step: a tiny Qwen3 from the same weights, tokenizer, prompts, learning rate and precision in both: cases `sft`, `dpo`, `grpo`;
metrics `steps_per_second`, `peak_mb` (of the process) and `steps_mb` (the part of it that training added: the peak beyond what the process held
just before the first step), peers TRL's trainers. GRPO: 4 prompts x 8 samples x 16 new tokens, the reward is the share of sampled ids in
the lower half of the vocabulary; `reward` is its mean over the last fifth of the steps, which must agree for the speed to mean anything.

Every measurement is a process of its own; the providers of a case take turns (A B C A B C ...), TURNS times, because the machine's speed
drifts. The value is the median of the turns' medians, low and high the least and greatest of them. Nothing is written to disk by either.
A case that needs CUDA runs where there is a CUDA device and is left out elsewhere, saying so.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COMMAND = "make bench-learner"
TURNS = 3
HEADS = {"head 1024 x 512 x 32000": (1024, 512, 32000), "head 2048 x 256 x 151936": (2048, 256, 151936)}
CUDA_HEADS = {"head 8192 x 4096 x 128256, bf16": (8192, 4096, 128256)}
SEQUENCES = 8  # of a head's rows
PROVIDERS = {
    "head": ("here", "naive", "compiled", "trl", "liger", "liger grpo", "verl", "torch"),
    "dpo head": ("here", "naive", "liger dpo"),
    "step": ("here", "trl"),
}
VOCABULARIES = {"512 ids": (512, 64), "151936 ids": (151936, 32)}  # name -> vocabulary, hidden size
SHAPES = {
    "sft, equal lengths": "equal",
    "sft, ragged lengths": "ragged",
    "dpo, equal lengths": "equal",
    "dpo, ragged lengths": "ragged",
    "grpo": "",
}


# ---- the head


def head(provider: str, n: int, d: int, v: int, repeats: int) -> dict:
    """One provider's seconds per forward and backward, peak memory, and error."""
    import torch

    cuda = torch.cuda.is_available() and v == 128256
    device, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
    torch.manual_seed(0)
    torch.set_num_threads(2)
    weight = (torch.randn(v, d) * (4 / d**0.5)).to(device, dtype).requires_grad_()
    hidden = torch.randn(n, d).to(device, dtype).requires_grad_()
    targets = torch.randint(0, v, (n,), device=device)
    each = n // SEQUENCES
    old, credit = -torch.rand(n, device=device) * 12, torch.randn(SEQUENCES, device=device).repeat_interleave(each)
    run = heads(provider, each, old, credit)

    def loss_of(logp, old=old, credit=credit):
        ratio = (logp - old).exp()
        return torch.maximum(-ratio * credit, -ratio.clamp(0.8, 1.2) * credit).sum() / len(logp)

    def step() -> None:
        hidden.grad = weight.grad = None
        run(hidden, weight, targets, loss_of)

    few = 256
    small = hidden[:few].detach().clone().requires_grad_()
    run(small, weight, targets[:few], lambda logp: loss_of(logp, old[:few], credit[:few]))
    error = [_error(small.grad, weight.grad, small, weight, targets[:few], old[:few], credit[:few], loss_of)] if not cuda else [None]
    del small
    weight.grad = torch.zeros_like(weight)
    hidden.grad = torch.zeros_like(hidden)
    before = peak(reset=True)
    step()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        step()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds, "extra_mb": peak() - before, "error": error[0]}


def heads(provider: str, each: int, old, credit):
    """(hidden, weight, targets, loss of log-probs) -> gradients in .grad, as the provider does it. each: rows of a sequence; old, credit
    [N]: what the loss is made of, for a provider that brings its own."""
    import torch

    if provider == "here":
        from training.logprob import Head
        from training.policy_loss import fused_policy_loss

        def run(h, w, y, loss_of):
            budget = max(256 * len(w), 1 << 24)  # of logits: 256 rows, or 67 MB where that is more
            fused_policy_loss(h, Head(weight=w), y, lambda s, _: (loss_of(s.logp), {}), scope="token", elements=budget)[0].backward()
    elif provider == "naive":

        def run(h, w, y, loss_of):
            loss_of(torch.log_softmax((h @ w.T).float(), -1).gather(1, y[:, None]).squeeze(1)).backward()
    elif provider == "compiled":
        naive = torch.compile(lambda h, w, y: torch.log_softmax((h @ w.T).float(), -1).gather(1, y[:, None]).squeeze(1), dynamic=False)

        def run(h, w, y, loss_of):
            loss_of(naive(h, w, y)).backward()
    elif provider == "liger grpo":
        from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

        theirs = LigerFusedLinearGRPOLoss(beta=0.0, compiled=False, use_ref_model=False, loss_type="bnpo")

        def run(h, w, y, loss_of):
            rows = [x.view(-1, each, *x.shape[1:]) for x in (h, y, torch.ones_like(y), old[: len(y)])]
            theirs(rows[0], w, rows[1], rows[2], credit[: len(y) : each], old_per_token_logps=rows[3])[0].backward()
    elif provider == "verl":
        import importlib.util

        where = importlib.util.find_spec("verl")
        if where is None:
            raise ModuleNotFoundError("verl is not installed (`pip install --no-deps verl`)")
        spec = importlib.util.spec_from_file_location("fused", Path(where.origin).parent / "utils/experimental/torch_functional.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

        def run(h, w, y, loss_of):
            loss_of(module.FusedLinearForPPOFunction.apply(h, w, y)[0]).backward()
    elif provider == "trl":
        from trl.kernels import ChunkedLogProbFunction

        def run(h, w, y, loss_of):
            loss_of(ChunkedLogProbFunction.apply(h, w, None, y, 1.0, 32768, None, 1.0, ())[0]).backward()
    elif provider == "liger":
        from liger_kernel.ops.fused_linear_scaled_cross_entropy import LigerFusedLinearScaledCrossEntropyFunction as Function

        def run(h, w, y, loss_of):
            out = Function.apply(h, w, y)
            loss_of(-(out[0] if isinstance(out, tuple) else out)).backward()
    elif provider == "torch":

        def run(h, w, y, loss_of):
            loss_of(-torch.nn.functional.linear_cross_entropy(h, w, y, reduction="none")).backward()

    return run


def pairs(provider: str, n: int, d: int, v: int, repeats: int) -> dict:
    """`head` with the loss of preference pairs: rows lie pair by pair, the chosen answer before the rejected one, N/8 rows each."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(2)
    weight = (torch.randn(v, d) * (4 / d**0.5)).requires_grad_()
    hidden, targets, each = torch.randn(n, d).requires_grad_(), torch.randint(0, v, (n,)), n // SEQUENCES

    def loss_of(logp):
        said = logp.view(-1, 2, each).sum(-1)
        return -torch.nn.functional.logsigmoid(0.1 * (said[:, 0] - said[:, 1])).mean()

    if provider == "here":
        from training.logprob import Head
        from training.policy_loss import fused_policy_loss

        def of_a_pair(stats, _):
            return loss_of(stats.logp), {}

        def run(h, w, y):
            lengths = [2 * each] * (len(y) // (2 * each))
            fused_policy_loss(h, Head(weight=w), y, of_a_pair, scope="sequence", lengths=lengths, elements=2 * each * v)[0].backward()
    elif provider == "naive":

        def run(h, w, y):
            loss_of(torch.log_softmax((h @ w.T).float(), -1).gather(1, y[:, None]).squeeze(1)).backward()
    else:
        from liger_kernel.chunked_loss import LigerFusedLinearDPOLoss

        theirs = LigerFusedLinearDPOLoss(beta=0.1, compiled=False, use_ref_model=False)

        def run(h, w, y):
            first = lambda x: x.view(-1, 2, each, *x.shape[1:]).transpose(0, 1).flatten(0, 1)  # all chosen, then all rejected  # noqa: E731
            theirs(w, first(h), first(y))[0].backward()

    small = hidden[: 2 * each].detach().clone().requires_grad_()
    run(small, weight, targets[: 2 * each])
    h, w = small.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    loss_of(torch.log_softmax(h @ w.T, -1).gather(1, targets[: 2 * each, None]).squeeze(1)).backward()
    error = max(float((a.double() - b).norm() / b.norm()) for a, b in ((small.grad, h.grad), (weight.grad, w.grad)))
    del small, h, w
    weight.grad, hidden.grad = torch.zeros_like(weight), torch.zeros_like(hidden)
    before, seconds = peak(reset=True), []
    for _ in range(repeats + 1):
        hidden.grad = weight.grad = None
        began = time.perf_counter()
        run(hidden, weight, targets)
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds[1:], "extra_mb": peak() - before, "error": error}


def _error(d_hidden, d_weight, hidden, weight, targets, old, credit, loss_of) -> float:
    """The larger of the relative errors of the two gradients against float64."""
    import torch

    h, w = hidden.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    loss_of(torch.log_softmax(h @ w.T, -1).gather(1, targets[:, None]).squeeze(1), old.double(), credit.double()).backward()
    return max(float((a.double() - b).norm() / b.norm()) for a, b in ((d_hidden, h.grad), (d_weight, w.grad)))


def peak(reset: bool = False) -> float:
    """Peak memory of this process in MB; reset: from now on (Linux), and what it holds now."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS" if reset else "VmHWM"].split()[0]) / 1024


# ---- the whole step


def whole(provider: str, case: str, vocabulary: int, hidden: int, steps: int) -> dict:
    """Seconds of each step, and the reward curve of GRPO."""
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        prompts, answers, tokenizer = make(folder, vocabulary, hidden, SHAPES[case])
        kind = case.split(",")[0]
        return {"here": ours, "trl": theirs}[provider](kind, folder, prompts, answers, tokenizer, steps)


def make(folder: str, vocabulary: int, hidden: int, lengths: str):
    """The same start for all: a model and tokenizer in `folder`, 64 prompts, and two answers to each (equal or ragged lengths)."""
    import random

    from transformers import Qwen3Config, Qwen3ForCausalLM

    from training.model import train_tokenizer

    rng = random.Random(0)
    words = ["".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(2)) for _ in range(150)]
    say = lambda n: " ".join(rng.choice(words) for _ in range(n))  # noqa: E731
    tokenizer = train_tokenizer([say(50) for _ in range(200)], 512)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            intermediate_size=4 * hidden, max_position_embeddings=512, tie_word_embeddings=True, bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    prompts = [say(8) for _ in range(64)]
    size = (lambda: 40) if lengths == "equal" else (lambda: rng.randint(5, 120))
    return prompts, [(say(n), say(n)) for n in (size() for _ in prompts)], tokenizer


def chat(prompt: str, answer: str = "") -> list[dict]:
    return [{"role": "user", "content": prompt}, *([{"role": "assistant", "content": answer}] if answer else [])]


def ours(kind: str, folder: str, prompts, answers, tokenizer, steps: int) -> dict:
    import copy

    from synth.types import Message, Problem, Sampling, Scored
    from training.advantage.grpo import grpo
    from training.curriculum.uniform import uniform
    from training.experience import Experience
    from training.learner import Learner, Optim, nll
    from training.model import load_model
    from training.objective import PolicyObjective
    from training.pack import Row, pack
    from training.pairs import PairObjective
    from training.prefer.dpo import dpo
    from training.ratio.token import token
    from training.render import Renderer
    from training.rollout.play import Player
    from training.rollout.torch_sampler import TorchSampler
    from training.rounds import Round, run
    from training.surrogate.clip import clip

    model, tok = load_model(folder, dtype="float32", device="cpu")
    renderer = Renderer(tok)
    learner = Learner(model, Optim(lr=1e-3, warmup=0, steps=steps, decay="constant"))
    half = model.config.vocab_size // 2

    def row(prompt: str, answer: str, group: int = 0, everything: bool = False) -> Row:
        import numpy as np

        asked = renderer.prompt([Message(role="user", content=prompt)])
        said = renderer.turn(answer)
        trainable = np.concatenate([np.full(len(asked), everything), np.ones(len(said), dtype=bool)])
        return Row(ids=np.concatenate([asked, said]), trainable=trainable, group=group)

    if kind == "sft":
        rows = [row(p, a, everything=True) for p, (a, _) in zip(prompts, answers, strict=True)]
        current = Round(
            name="sft", role="policy", steps=steps, objective=nll, source=lambda s: ([pack([rows[(8 * s + i) % 64] for i in range(8)])], {})
        )
    elif kind == "dpo":
        objective = PairObjective(loss=dpo, reference=copy.deepcopy(model).requires_grad_(False))
        pairs = [(row(p, a, i), row(p, b, i)) for i, (p, (a, b)) in enumerate(zip(prompts, answers, strict=True))]
        current = Round(name="dpo", role="policy", steps=steps, objective=objective, prepare=objective.prepare, together=2,
                        source=lambda s: ([pack([r for i in range(4) for r in pairs[(4 * s + i) % 64]])], {}))  # fmt: skip
    else:

        class Asked:
            def start(self, problem, tools):
                return {}, list(problem.prompt)

            def step(self, state, text):
                return [], True, Scored(value=0.0)

        def lower(groups, rewards, state, rng):
            import numpy as np

            return [
                np.array([np.mean(np.concatenate([s.ids for s in r.segments if s.role == "model"]) < half) for r in g.rollouts])
                for g in groups
            ]

        objective = PolicyObjective(ratio=token, surrogate=clip)
        means: list[float] = []

        def rewarded(groups, rewards, state, rng):
            shaped = lower(groups, rewards, state, rng)
            means.append(float(sum(x.mean() for x in shaped) / len(shaped)))
            return shaped

        kind_of = {"answer": "", "verifier": "exact_match", "family": "bench", "env": "asked", "split": "train"}
        experience = Experience(
            problems=[Problem.make(prompt=p, **kind_of) for p in prompts],
            player=Player(sampler=TorchSampler(model, renderer.end_id), renderer=renderer, envs={"asked": Asked()},
                          sampling=Sampling(temperature=1.0, max_tokens=16)),
            advantage=grpo, curriculum=uniform, rewards=[rewarded], prompts_per_step=4, samples_per_prompt=8,
        )  # fmt: skip
        current = Round(name="grpo", role="policy", steps=steps, objective=objective, prepare=objective.prepare, source=experience)
    before = peak(reset=True)
    seconds, parts, began = [], [], time.perf_counter()
    for _, _, metrics in run([current], {"policy": learner}):
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        parts.append({k: metrics[k] for k in ("rollout_seconds", "learn_seconds") if k in metrics})
    out = {"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "steps_mb": peak() - before, "parts": _medians(parts)}
    return out | ({"reward": means} if kind == "grpo" else {})


def theirs(kind: str, folder: str, prompts, answers, tokenizer, steps: int) -> dict:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    logging.disable(logging.WARNING)
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    half = model.config.vocab_size // 2
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = getattr(self, "ended", None) or time.perf_counter()  # the time between steps (batches, logs) is the step's

        def on_step_end(self, *_, **__):
            self.ended = time.perf_counter()
            seconds.append(self.ended - self.began)

    with tempfile.TemporaryDirectory() as scratch:
        common = dict(
            output_dir=scratch, use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none", logging_steps=steps,
            disable_tqdm=True, save_strategy="no", max_steps=steps, learning_rate=1e-3, lr_scheduler_type="constant", weight_decay=0.01,
            seed=0,
        )  # fmt: skip
        if kind == "sft":
            from trl import SFTConfig, SFTTrainer

            data = Dataset.from_list([{"messages": chat(p, a)} for p, (a, _) in zip(prompts, answers, strict=True)])
            trainer = SFTTrainer(model, SFTConfig(per_device_train_batch_size=8, max_length=None, **common), train_dataset=data,
                                 processing_class=tokenizer, callbacks=[Clock()])  # fmt: skip
        elif kind == "dpo":
            from trl import DPOConfig, DPOTrainer

            data = Dataset.from_list(
                [
                    {"prompt": chat(p), "chosen": chat("", a)[1:], "rejected": chat("", b)[1:]}
                    for p, (a, b) in zip(prompts, answers, strict=True)
                ]
            )
            args = DPOConfig(per_device_train_batch_size=4, beta=0.1, max_length=None, **common)
            trainer = DPOTrainer(model, args=args, train_dataset=data,
                                 processing_class=tokenizer, callbacks=[Clock()])  # fmt: skip
        else:
            from trl import GRPOConfig, GRPOTrainer

            means: list[float] = []

            def reward(completion_ids, **_):
                r = [sum(i < half for i in ids) / max(1, len(ids)) for ids in completion_ids]
                means.append(sum(r) / len(r))
                return r

            args = GRPOConfig(
                per_device_train_batch_size=32, num_generations=8, max_completion_length=16, temperature=1.0, beta=0.0, **common
            )
            data = Dataset.from_list([{"prompt": chat(p)} for p in prompts])
            trainer = GRPOTrainer(model, reward, args=args, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()])
        before = peak(reset=True)
        trainer.train()
    out = {"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "steps_mb": peak() - before, "parts": {}}
    return out | ({"reward": means} if kind == "grpo" else {})


def _medians(rows: list[dict]) -> dict:
    return {k: statistics.median(r[k] for r in rows) for k in (rows[-1] if rows else {})}


# ---- all of it


def child(*args: str, module: str = "benchmarks.learner") -> dict | str:
    """A measurement in a process of its own; where it cannot be made, the last line of why."""
    command = [sys.executable, "-m", module, "--child", *args]
    env = {**os.environ, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"} | ({"MALLOC_MMAP_THRESHOLD_": "65536"} if args[-1] == "0" else {})
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])


def result(case: str, metric: str, unit: str, better: str, of: dict[str, list[float]], digits: int = 4) -> dict:
    """`of`: provider -> the median of each turn."""
    mid = {p: round(statistics.median(x), digits) for p, x in of.items()}
    peers = {p: x for p, x in mid.items() if p != "here"}
    best = (max if better == "higher" else min)(peers.values()) if peers else None
    ratio = None if not best or not mid["here"] else round(mid["here"] / best if better == "higher" else best / mid["here"], 3)
    return {
        "case": case, "metric": metric, "value": mid["here"], "unit": unit, "better": better, "low": round(min(of["here"]), digits),
        "high": round(max(of["here"]), digits), "n": len(of["here"]), "peers": peers, "ratio_to_best_peer": ratio, "device": device(),
        "versions": versions(), "command": COMMAND,
    }  # fmt: skip


def device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "2 CPU cores"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("torch", "transformers", "trl", "liger_kernel"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def turns(label: str, providers: tuple[str, ...], n: int, arguments) -> dict[str, list[dict]]:
    """provider -> what each of its n turns measured; one that cannot run is said once and left out."""
    found: dict[str, list[dict]] = {p: [] for p in providers}
    for turn in range(n):
        for p in list(found):
            out = child(*arguments(p))
            if isinstance(out, str):
                print(f"{label}: {p} is left out: {out}", flush=True)
                del found[p]
            else:
                found[p].append(out)
                print(f"{label}: turn {turn + 1}, {p}: {statistics.median(out['seconds']):.4f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="the learner step against its peers")
    parser.add_argument("--child", nargs="+", help="one measurement: what the benchmark starts for each")
    parser.add_argument("--only", default="", help="measure the cases whose name holds this; the others stay")
    parser.add_argument("--turns", type=int, default=TURNS)
    args = parser.parse_args()
    if args.child:
        kind, provider, *rest = args.child
        of = {"head": head, "dpo head": pairs}
        out = of[kind](provider, *map(int, rest)) if kind in of else whole(provider, rest[0], *map(int, rest[1:]))
        print(json.dumps(out))
        return
    import torch

    cases: list[dict] = []
    shapes = {**HEADS, **(CUDA_HEADS if torch.cuda.is_available() else {})}
    if not torch.cuda.is_available():
        print(f"left out, no CUDA device: {', '.join(CUDA_HEADS)}")
    for kind, case, (n, d, v) in [(k, f"{k}{c.removeprefix('head')}", x) for k in ("head", "dpo head") for c, x in shapes.items()]:
        if args.only in case and not (kind == "dpo head" and v == 128256):
            found = turns(case, PROVIDERS[kind], args.turns, lambda p, k=kind, s=(n, d, v): (k, p, *map(str, s), "2"))
            cases.append(
                result(case, "seconds", "s", "lower", {p: [statistics.median(x["seconds"]) for x in xs] for p, xs in found.items()})
            )
            memory = {p: [child(kind, p, *map(str, (n, d, v)), "0")["extra_mb"]] for p in found}
            cases.append(result(case, "extra_mb", "MB", "lower", memory, 0))
            errors = {p: [x["error"] for x in xs if x["error"] is not None] for p, xs in found.items()}
            if all(errors.values()):
                cases.append(result(case, "error", "1e-6, relative", "lower", {p: [x * 1e6 for x in xs] for p, xs in errors.items()}, 3))
    for name, (vocabulary, hidden) in VOCABULARIES.items():
        for shape in SHAPES:
            case = f"{shape}, {name}"
            if args.only not in case:
                continue
            steps = 60 if vocabulary == 512 else 8
            found = turns(case, PROVIDERS["step"], args.turns, lambda p, a=(shape, vocabulary, hidden, steps): ("step", p, *map(str, a)))
            skip = 5 if vocabulary == 512 else 2
            rate = {p: [1 / statistics.median(x["seconds"][skip:]) for x in xs] for p, xs in found.items()}
            cases.append(result(case, "steps_per_second", "steps/s", "higher", rate))
            for metric in ("peak_mb", "steps_mb"):
                cases.append(result(case, metric, "MB", "lower", {p: [x[metric] for x in xs] for p, xs in found.items()}, 0))
            if shape == "grpo":
                last = {p: [statistics.mean(x["reward"][-max(1, steps // 5) :]) for x in xs] for p, xs in found.items()}
                cases.append({**result(case, "reward", "share", "higher", last), "ratio_to_best_peer": None})
    path = RESULTS / "learner.json"
    if args.only and path.exists():  # the other cases stay as they were measured
        measured, before = {c["case"] for c in cases}, json.loads(path.read_text(encoding="utf-8"))
        place = {name: i for i, name in enumerate(dict.fromkeys(c["case"] for c in [*before, *cases]))}
        cases = sorted([*cases, *(c for c in before if c["case"] not in measured)], key=lambda c: place[c["case"]])
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
