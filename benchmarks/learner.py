"""The learner step against its peers, on the same inputs and machine, in turns: `make bench-learner`

Head: hidden states [N, d], weight [V, d], targets, sampling log-probs and advantages in; the loss of a clipped policy
gradient and the gradients of hidden states and weight out (benchmarks/learner_heads.py). Cases `head N x d x V`.
Metrics: `seconds`; `extra_mb`, the peak memory of a process beyond what inputs and both gradients take (large blocks
returned as they are freed); `of_3_products`, the time that the three matrix products alone take in the same run, as a
share of the provider's; `error`, the relative error of dH and dW against float64
on 256 rows for a given dL/dlogp, and `error_with_loss`, for the loss, whose ratios make more of the rounding of a
float32 log-prob. Peers: the naive way (all logits, log_softmax, autograd), the same through torch.compile, TRL's
chunked head, Liger's fused linear scaled cross entropy (on a CPU that is its own fallback) and its GRPO loss (one
advantage per sequence of N/8 rows, as Liger wants it; not compiled), verl's FusedLinearForPPO (its file alone: `pip
install --no-deps verl`), torch's F.linear_cross_entropy. Cases `dpo head`: the loss of N/16 pairs instead, peers the
naive way and Liger's DPO loss. On a GPU the loss has an entropy bonus where a peer can give one, and QuACK's cross
entropy runs beside (it has no weights of tokens: labelled so).

Whole step: a tiny Qwen3 (on a GPU one of width 1,024 in bfloat16, whose updates TRL rounds to it) from the same
weights, tokenizer, prompts, learning rate and precision in both: cases `sft`, `dpo`, `grpo`; metrics
`steps_per_second`, `peak_mb` (of the process) and `steps_mb` (the part of it that training added: the peak beyond what
the process held just before the first step), peers TRL's trainers. GRPO: 4 prompts x 8 samples x 16 new tokens, the
reward is the share of sampled ids in the lower half of the vocabulary; `reward` is its mean over the last fifth of the
steps (five at least), which must agree for the speed to mean anything.

Cases `SmolLM2-135M`: the same three kinds of step on a pretrained model (`make smollm`), one thread, CPU seconds, since
other work on the machine takes the clock's: SFT on 8 rows of 128 tokens, DPO on 4 pairs of such rows, GRPO with 4
prompts x 8 samples x 64 new tokens. `here, bfloat16` is ours with `dtype: bfloat16`.

Every measurement is a process of its own; the providers of a case take turns (A B C A B C ...), because the machine's
speed drifts. The value is the median of the turns' medians, low and high the least and greatest of them. A case of
151,936 ids takes one turn: a step takes seconds there; --turns 3 gives every case three. Nothing is written to disk by
either. A case that needs CUDA runs where there is a CUDA device and is left out elsewhere, saying so.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.learner_heads import LARGE, ON_GPU, head, pairs, peak
from benchmarks.learner_plot import plot
from benchmarks.rows import result_row

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COMMAND = "make bench-learner"
TURNS = 2
HEADS = {"head 1024 x 512 x 32000": (1024, 512, 32000), "head 2048 x 256 x 151936": (2048, 256, 151936)}
CUDA_HEADS = {"head 8192 x 4096 x 128256, bf16": (8192, 4096, ON_GPU)}
PROVIDERS = {
    "head": ("here", "products", "naive", "compiled", "trl", "liger", "liger grpo", "verl", "torch"),
    "cuda head": (
        "here",
        "here, 1 GB",
        "products",
        "compiled",
        "trl",
        "liger",
        "verl",
        "torch",
        "quack (cross entropy only)",
    ),
    "dpo head": ("here", "naive", "liger dpo"),
    "step": ("here", "trl"),
    "pretrained step": ("here", "here, bfloat16", "trl"),
}
BONUS = 0.01  # of the entropy, on a GPU
VOCABULARIES = {"512 ids": (512, 64), "151936 ids": (151936, 32)}  # name -> vocabulary, hidden size
CUDA_VOCABULARIES = {"151936 ids, bf16, on a GPU": (151936, 1024)}
PRETRAINED, FROM_FILE = "SmolLM2-135M", 0  # its name, and the hidden size that stands for "as in its file"
SIZES = {**VOCABULARIES, **CUDA_VOCABULARIES, PRETRAINED: (49152, FROM_FILE)}
SHAPES = {
    "sft, equal lengths": "equal",
    "sft, ragged lengths": "ragged",
    "dpo, equal lengths": "equal",
    "dpo, ragged lengths": "ragged",
    "grpo": "",
}


# ---- the whole step


def placed(hidden: int) -> tuple[str, str]:
    """Device and type of a model of this width: those for a GPU are told by it."""
    import torch

    return ("cuda", "bfloat16") if hidden >= 1024 and torch.cuda.is_available() else ("cpu", "float32")


def whole(provider: str, case: str, vocabulary: int, hidden: int, steps: int, **more) -> dict:
    """Seconds of each step, and the reward curve of GRPO. more: fields of How."""
    import torch

    pretrained = hidden == FROM_FILE
    torch.set_num_threads(1 if pretrained else 2)
    torch.manual_seed(0)
    name, _, dtype = provider.partition(", ")
    device, usual = placed(hidden)
    with tempfile.TemporaryDirectory() as folder:
        prompts, answers, tokenizer = (
            make_pretrained(folder) if pretrained else make(folder, vocabulary, hidden, SHAPES[case])
        )
        # a rate of a model from scratch would ruin a pretrained one within the first step
        how = How(steps, device, dtype or usual, *((1e-6, 64, time.process_time) if pretrained else ()), **more)
        return {"here": ours, "trl": theirs}[name](case.split(",")[0], folder, prompts, answers, tokenizer, how)


@dataclass(frozen=True)
class How:
    """What both sides train with. new: most tokens of a sample; now: the clock. Of our side alone: `learner`, a class in
    the place of Learner; `shared`, False where each row computes its own prompt; `seen`, called with each step's
    metrics."""

    steps: int
    device: str
    dtype: str
    lr: float = 1e-3
    new: int = 16
    now: Callable[[], float] = time.perf_counter
    learner: Callable[..., Any] | None = None
    shared: bool = True
    seen: Callable[[Mapping[str, float]], None] = lambda metrics: None


def make_pretrained(folder: str):
    """The pretrained model in `folder` as transformers reads it, 64 prompts and two answers to each; a prompt with an
    answer has 128 tokens in its template."""
    import random

    from benchmarks.real import smollm2
    from training.model.model import load_model

    model, tokenizer = load_model(smollm2())
    model.config._attn_implementation = "sdpa"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    rng = random.Random(0)
    words = "house tree water light stone paper green table river bread small large white black round early".split()
    say = lambda n: " ".join(rng.choice(words) for _ in range(n))  # noqa: E731
    fixed = len(tokenizer.apply_chat_template(chat(say(8), say(8)), return_dict=False)) - 8
    return [say(8) for _ in range(64)], [(say(128 - fixed), say(128 - fixed)) for _ in range(64)], tokenizer


def make(folder: str, vocabulary: int, hidden: int, lengths: str):
    """The same start for all: a model and tokenizer in `folder`, 64 prompts, and two answers to each (equal or ragged
    lengths)."""
    import random

    from transformers import Qwen3Config, Qwen3ForCausalLM

    from training.model.model import train_tokenizer

    rng = random.Random(0)
    words = ["".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(2)) for _ in range(150)]
    say = lambda n: " ".join(rng.choice(words) for _ in range(n))  # noqa: E731
    tokenizer = train_tokenizer([say(50) for _ in range(200)], 512)
    heads = max(4, hidden // 64)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_hidden_layers=4,
            num_attention_heads=heads,
            num_key_value_heads=heads // 2,
            head_dim=64 if hidden >= 1024 else 16,
            intermediate_size=4 * hidden,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    prompts = [say(8) for _ in range(64)]
    size = (lambda: 40) if lengths == "equal" else (lambda: rng.randint(5, 120))
    return prompts, [(say(n), say(n)) for n in (size() for _ in prompts)], tokenizer


def chat(prompt: str, answer: str = "") -> list[dict]:
    return [{"role": "user", "content": prompt}, *([{"role": "assistant", "content": answer}] if answer else [])]


def ours(kind: str, folder: str, prompts, answers, tokenizer, how: How) -> dict:
    import copy

    from synth.types import Message, Problem, Sampling, Scored
    from training.learner.learner import Learner, Optim, nll
    from training.learner.loop import Round, run
    from training.learner.pack import Row, pack
    from training.model.model import load_model
    from training.model.render import Renderer
    from training.preference.loss.dpo import dpo
    from training.preference.objective import PairObjective
    from training.rl.advantage.grpo import grpo
    from training.rl.curriculum.uniform import uniform
    from training.rl.experience import Experience
    from training.rl.objective import PolicyObjective
    from training.rl.policy_loss.clip import clip
    from training.rl.ratio.token import token
    from training.rollout.play import Player
    from training.rollout.torch_sampler import TorchSampler

    steps = how.steps
    model, tok = load_model(folder, dtype=how.dtype, device=how.device)
    renderer = Renderer(tok)
    learner = (how.learner or Learner)(model, Optim(lr=how.lr, warmup=0, steps=steps, decay="constant"))
    half = model.config.vocab_size // 2

    def row(prompt: str, answer: str, group: int = 0, everything: bool = False) -> Row:
        import numpy as np

        prompt_ids = renderer.prompt([Message(role="user", content=prompt)])
        answer_ids = renderer.turn(answer)
        trainable = np.concatenate([np.full(len(prompt_ids), everything), np.ones(len(answer_ids), dtype=bool)])
        return Row(ids=np.concatenate([prompt_ids, answer_ids]), trainable=trainable, group=group)

    if kind == "sft":
        rows = [row(p, a, everything=True) for p, (a, _) in zip(prompts, answers, strict=True)]
        current = Round(
            name="sft",
            role="policy",
            steps=steps,
            objective=nll,
            source=lambda s: ([pack([rows[(8 * s + i) % 64] for i in range(8)])], {}),
        )
    elif kind == "dpo":
        objective = PairObjective(loss=dpo, reference=copy.deepcopy(model).requires_grad_(False))
        pairs = [(row(p, a, i), row(p, b, i)) for i, (p, (a, b)) in enumerate(zip(prompts, answers, strict=True))]
        current = Round(
            name="dpo",
            role="policy",
            steps=steps,
            objective=objective,
            prepare=objective.prepare,
            rows_per_unit=2,
            source=lambda s: ([pack([r for i in range(4) for r in pairs[(4 * s + i) % 64]])], {}),
        )
    else:

        class Asked:
            def start(self, problem, tools):
                return {}, list(problem.prompt)

            def step(self, state, text):
                return [], True, Scored(value=0.0)

        def lower(groups, rewards, state, rng):
            import numpy as np

            return [
                np.array(
                    [
                        np.mean(np.concatenate([s.ids for s in r.segments if s.role == "model"]) < half)
                        for r in g.rollouts
                    ]
                )
                for g in groups
            ]

        objective = PolicyObjective(ratio=token, policy_loss=clip)
        means: list[float] = []

        def rewarded(groups, rewards, state, rng):
            shaped = lower(groups, rewards, state, rng)
            means.append(float(sum(x.mean() for x in shaped) / len(shaped)))
            return shaped

        kind_of = {"answer": "", "verifier": "exact_match", "family": "bench", "env": "asked", "split": "train"}
        experience = Experience(
            problems=[Problem.make(prompt=p, **kind_of) for p in prompts],
            player=Player(
                sampler=TorchSampler(model, renderer.end_id),
                renderer=renderer,
                envs={"asked": Asked()},
                sampling=Sampling(temperature=1.0, max_tokens=how.new),
            ),
            advantage=grpo,
            curriculum=uniform,
            rewards=[rewarded],
            prompts_per_step=4,
            samples_per_prompt=8,
        )
        current = Round(
            name="grpo", role="policy", steps=steps, objective=objective, prepare=objective.prepare, source=experience
        )
    if not how.shared:
        current = replace(current, source=unshared(current.source))
    before = peak(reset=True, cuda=how.device == "cuda")
    seconds, parts, began = [], [], how.now()
    for _, _, metrics in run([current], {"policy": learner}):
        seconds.append(how.now() - began)
        how.seen(metrics)
        began = how.now()
        parts.append({k: metrics[k] for k in ("rollout_seconds", "learn_seconds") if k in metrics})
    out = {"seconds": seconds, **memory(before, how.device), "parts": _medians(parts)}
    return out | ({"reward": means} if kind == "grpo" else {})


def unshared(source):
    """The source of a round, of whose batches each row computes its own prompt."""

    def alone(step: int):
        batches, metrics = source(step)
        return [replace(b, prefixes=[]) for b in batches], metrics

    return alone


def theirs(kind: str, folder: str, prompts, answers, tokenizer, how: How) -> dict:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    logging.disable(logging.WARNING)
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback

    steps, device = how.steps, how.device
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=how.dtype)
    half = model.config.vocab_size // 2
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = getattr(self, "ended", None) or how.now()  # time between steps (batches, logs) is the step's

        def on_step_end(self, *_, **__):
            self.ended = how.now()
            seconds.append(self.ended - self.began)

    with tempfile.TemporaryDirectory() as scratch:
        common = dict(
            output_dir=scratch,
            use_cpu=device == "cpu",
            bf16=device == "cuda",
            gradient_checkpointing=False,
            report_to="none",
            logging_steps=steps,
            disable_tqdm=True,
            save_strategy="no",
            max_steps=steps,
            learning_rate=how.lr,
            lr_scheduler_type="constant",
            weight_decay=0.01,
            seed=0,
        )
        if kind == "sft":
            from trl import SFTConfig, SFTTrainer

            data = Dataset.from_list([{"messages": chat(p, a)} for p, (a, _) in zip(prompts, answers, strict=True)])
            trainer = SFTTrainer(
                model,
                SFTConfig(per_device_train_batch_size=8, max_length=None, **common),
                train_dataset=data,
                processing_class=tokenizer,
                callbacks=[Clock()],
            )
        elif kind == "dpo":
            from trl import DPOConfig, DPOTrainer

            data = Dataset.from_list(
                [
                    {"prompt": chat(p), "chosen": chat("", a)[1:], "rejected": chat("", b)[1:]}
                    for p, (a, b) in zip(prompts, answers, strict=True)
                ]
            )
            args = DPOConfig(per_device_train_batch_size=4, beta=0.1, max_length=None, **common)
            trainer = DPOTrainer(model, args=args, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()])
        else:
            from trl import GRPOConfig, GRPOTrainer

            means: list[float] = []

            def reward(completion_ids, **_):
                r = [sum(i < half for i in ids) / max(1, len(ids)) for ids in completion_ids]
                means.append(sum(r) / len(r))
                return r

            args = GRPOConfig(
                per_device_train_batch_size=32,
                num_generations=8,
                max_completion_length=how.new,
                temperature=1.0,
                beta=0.0,
                **common,
            )
            data = Dataset.from_list([{"prompt": chat(p)} for p in prompts])
            trainer = GRPOTrainer(
                model, reward, args=args, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()]
            )
        before = peak(reset=True, cuda=device == "cuda")
        trainer.train()
    out = {"seconds": seconds, **memory(before, device), "parts": {}}
    return out | ({"reward": means} if kind == "grpo" else {})


def memory(before: float, device: str) -> dict[str, float]:
    """Peak memory of the process (or of what it holds on the GPU), and what of it came after `before`, in MB."""
    most = peak(cuda=device == "cuda")
    top = most if device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak_mb": top, "steps_mb": most - before}


def _medians(rows: list[dict]) -> dict:
    return {k: statistics.median(r[k] for r in rows) for k in (rows[-1] if rows else {})}


# ---- all of it


def child(*args: str, module: str = "benchmarks.learner") -> dict | str:
    """A measurement in a process of its own; where it cannot be made, the last line of why."""
    command = [sys.executable, "-m", module, "--child", *args]
    env = {**os.environ, "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1"}
    # A run for memory alone: nearly all blocks go back as they are freed.
    if args[0].endswith("head") and args[5] == "0":
        env["MALLOC_MMAP_THRESHOLD_"] = "65536"
    elif args[0].endswith("head") and int(args[4]) > LARGE:  # for both: the large ones do
        env |= {"MALLOC_MMAP_THRESHOLD_": str(4 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])


def result(case: str, metric: str, unit: str, better: str, of: dict[str, list[float]], digits: int = 4) -> dict:
    """`of`: provider -> the median of each turn."""
    mid = {p: round(statistics.median(x), digits) for p, x in of.items()}
    peers = {p: x for p, x in mid.items() if p != "here"}
    others = [x for p, x in peers.items() if not p.startswith("here")]
    best = (max if better == "higher" else min)(others) if others else None
    ratio = (
        None
        if not best or not mid["here"]
        else round(mid["here"] / best if better == "higher" else best / mid["here"], 3)
    )
    return result_row(
        case,
        metric,
        mid["here"],
        unit,
        COMMAND,
        len(of["here"]),
        better=better,
        low=round(min(of["here"]), digits),
        high=round(max(of["here"]), digits),
        peers=peers,
        ratio=ratio,
        device=device(),
        **versions(),
    )


def device() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "2 CPU cores"


def versions() -> dict[str, str]:
    versions_of = {"python": platform.python_version()}
    for name in ("torch", "transformers", "trl", "liger_kernel"):
        try:
            versions_of[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions_of


def turns(label: str, providers: tuple[str, ...], n: int, arguments) -> dict[str, list[dict]]:
    """provider -> what each of its n turns measured; one that cannot run is said once and left out."""
    per_provider: dict[str, list[dict]] = {p: [] for p in providers}
    for turn in range(n):
        for p in list(per_provider):
            out = child(*arguments(p))
            if isinstance(out, str):
                print(f"{label}: {p} is left out: {out}", flush=True)
                del per_provider[p]
            else:
                per_provider[p].append(out)
                print(f"{label}: turn {turn + 1}, {p}: {statistics.median(out['seconds']):.4f} s", flush=True)
    return per_provider


def measured_head(kind: str, case: str, shape: tuple[int, int, int], n_turns: int) -> list[dict]:
    """The results of a case: times in turns, memory of a process that frees what it can, errors of the first turn."""
    cuda = shape[2] == ON_GPU
    large = shape[2] > LARGE
    sizes, more = tuple(map(str, shape)), (str(BONUS),) * cuda
    providers = PROVIDERS["cuda head" if cuda else kind]
    measured = turns(
        case, providers, n_turns, lambda p: (kind, p, *sizes, "20" if cuda else "1" if large else "2", *more)
    )
    limit = [statistics.median(x["seconds"]) for x in measured.pop("products", [])]
    seconds = {p: [statistics.median(x["seconds"]) for x in xs] for p, xs in measured.items()}
    out = [result(case, "seconds", "s", "lower", seconds)]
    if limit:
        shares = {p: [least / x for least, x in zip(limit, xs, strict=True)] for p, xs in seconds.items()}
        out.append(result(case, "of_3_products", "share of the limit", "higher", shares, 3))
    memory = {
        p: [xs[0]["extra_mb"] if large else child(kind, p, *sizes, "0", *more)["extra_mb"]]
        for p, xs in measured.items()
    }
    out.append(result(case, "extra_mb", "MB", "lower", memory, 0))
    for metric in ("error", "error_with_loss"):
        wrong = {p: [1e6 * xs[0][metric]] for p, xs in measured.items() if metric in xs[0]}
        out.append(result(case, metric, "1e-6, relative", "lower", wrong, 3))
    return out


def measured_step(shape: str, name: str, n_turns: int) -> list[dict]:
    """The results of a case of the whole step."""
    case, (vocabulary, hidden) = f"{shape}, {name}", SIZES[name]
    pretrained = name == PRETRAINED
    slow = pretrained or vocabulary > LARGE and name in VOCABULARIES
    steps, skip = (5, 1) if slow else (60 if shape == "grpo" else 40, 5)
    measured = turns(
        case,
        PROVIDERS["pretrained step" if pretrained else "step"],
        n_turns,
        lambda p: ("step", p, shape, str(vocabulary), str(hidden), str(3 if pretrained else steps)),
    )
    taken = {p: [statistics.median(x["seconds"][skip:]) for x in xs] for p, xs in measured.items()}
    rate = {p: [1 / s for s in xs] for p, xs in taken.items()}
    out = (
        [result(case, "step", "CPU s", "lower", taken, 2)]
        if pretrained
        else [result(case, "steps_per_second", "steps/s", "higher", rate)]
    )
    for metric in ("peak_mb", "steps_mb"):
        out.append(result(case, metric, "MB", "lower", {p: [x[metric] for x in xs] for p, xs in measured.items()}, 0))
    if shape == "grpo":
        last = {p: [statistics.mean(x["reward"][-max(5, steps // 5) :]) for x in xs] for p, xs in measured.items()}
        out.append({**result(case, "reward", "share", "higher", last), "ratio_to_best_peer": None})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="the learner step against its peers")
    parser.add_argument("--child", nargs="+", help="one measurement: what the benchmark starts for each")
    parser.add_argument("--only", default="", help="measure the cases whose name holds this; the others stay")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder that the results go to; no plot elsewhere"
    )
    parser.add_argument("--turns", type=int, help=f"of every case ({TURNS}, and 1 of a case of 151,936 ids)")
    args = parser.parse_args()
    if args.child:
        print(json.dumps(one(*args.child)))
        return
    import torch

    began = time.perf_counter()
    if not torch.cuda.is_available():
        print(
            f"left out, no CUDA device: {'; '.join([*CUDA_HEADS, *(f'{s}, {n}' for n in CUDA_VOCABULARIES for s in SHAPES)])}"
        )
    n_turns = lambda v: args.turns or (1 if v > LARGE else TURNS)  # noqa: E731
    cases: list[dict] = []
    for kind in ("head", "dpo head"):
        for name, shape in {**HEADS, **(CUDA_HEADS if kind == "head" and torch.cuda.is_available() else {})}.items():
            case = f"{kind}{name.removeprefix('head')}"
            if args.only in case:
                cases += measured_head(kind, case, shape, n_turns(shape[2]))
    for name, (vocabulary, _) in SIZES.items():
        if name in CUDA_VOCABULARIES and not torch.cuda.is_available():
            continue
        for shape in SHAPES:
            if args.only in f"{shape}, {name}" and not (name == PRETRAINED and "ragged" in shape):
                cases += measured_step(shape, name, n_turns(vocabulary))
    if not cases:
        raise SystemExit(
            f"no case's name holds {args.only!r}: {', '.join([*HEADS, *(f'{s}, {n}' for n in (*VOCABULARIES, PRETRAINED) for s in SHAPES)])}"
        )
    path = args.results / "learner.json"
    if args.only and path.exists():  # the other cases stay as they were measured
        measured, before = {c["case"] for c in cases}, json.loads(path.read_text(encoding="utf-8"))
        place = {name: i for i, name in enumerate(dict.fromkeys(c["case"] for c in [*before, *cases]))}
        cases = sorted([*cases, *(c for c in before if c["case"] not in measured)], key=lambda c: place[c["case"]])
    args.results.mkdir(exist_ok=True)
    path.write_text(json.dumps(cases, indent=1) + "\n", encoding="utf-8")
    print(f"{len(cases)} results in {(time.perf_counter() - began) / 60:.1f} minutes: {path}")
    if args.results == RESULTS:
        plot()


def one(kind: str, provider: str, *rest: str) -> dict:
    """A measurement, in this process."""
    if kind == "step":
        return whole(provider, rest[0], *map(int, rest[1:]))
    return {"head": head, "dpo head": pairs}[kind](provider, *map(int, rest[:4]), *map(float, rest[4:]))


if __name__ == "__main__":
    main()
