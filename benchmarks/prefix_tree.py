"""What a step costs where rows share long beginnings: agents whose every request repeats the session so far.
`make bench-prefix-tree`

A request of an agent is a row: what the session held before it, what the model wrote before included, and what the model
writes now. `here` computes each token of the prefix tree once; `plain` computes every row whole, in the same process
with nothing else changed, as trainers that know no tree do. Both give the same loss and gradients
(tests/training/learner/test_learner_shared.py); how far either is from float64 is measured here too.

- 8 agents of 12 turns (rows hold 6.5 times the different tokens): CPU seconds of a step (median of STEPS, in processes that
  take turns) and memory beyond that before the first step, through compiled code, through torch, and with
  `gradient_checkpointing`
- one size of tree, its tokens 1 to 20 times in the rows: CPU time of `here` as a share of `plain`, beside the ideal, which is
  the share of tokens: docs/images/prefix-tree.svg
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.learner import child, result

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "prefix-tree.json"
PICTURE = ROOT / "docs" / "images" / "prefix-tree.svg"
COMMAND = "make bench-prefix-tree"
AGENTS, TURNS, STEPS = 8, 12, 5
WAYS = {"compiled code": (), "torch": ("torch",), "torch, gradient_checkpointing": ("torch", "checkpointing")}
TIMES = (1, 2, 3, 5, 8, 12, 16, 20)


def rows(agents: int, turns: int, told: int, reply_tokens: int) -> list[Any]:
    """The requests of sessions of `turns` turns, in each of which `told` tokens come and `said` are written."""
    import numpy as np

    from training.learner.pack import Row

    rng, out = np.random.default_rng(0), []
    for g in range(agents):
        session = rng.integers(0, 500, turns * (told + reply_tokens))
        for turn in range(1, turns + 1):
            ids = session[: turn * (told + reply_tokens)]
            columns = {"advantages": np.full(len(ids), rng.normal()), "sampling_logp": rng.normal(-6, 0.1, len(ids))}
            out.append(Row(ids=ids, trainable=np.arange(len(ids)) >= len(ids) - reply_tokens, group=g, columns=columns))
    return out


def packed(shape: list[int], tree: bool) -> Any:
    """The batch of the rows; tree False: every row is computed whole."""
    from training.learner.pack import pack

    batch = pack(rows(*shape))
    return batch if tree else replace(batch, prefixes=[])


def step(tree: bool, ways: list[str], shape: list[int], steps: int = STEPS) -> dict:
    """Seconds of the steps, MB more than before, tokens and the gradient of one step's weights."""
    from training.learner import pack
    from training.learner.learner import Learner, Optim
    from training.model.native.build import turn_off
    from training.rl.objective import PolicyObjective
    from training.rl.policy_loss.clip import clip
    from training.rl.ratio.token import token

    if "torch" in ways:
        turn_off("the benchmark does without")
    learner = Learner(model(), Optim(lr=0.0), gradient_checkpointing="checkpointing" in ways)
    batch = packed(shape, tree)
    objective = PolicyObjective(ratio=token, policy_loss=clip)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = []
    for _ in range(steps + 1):
        begun = time.process_time()  # of all threads: the clock tells who else was at work
        learner.step(batch, objective)
        seconds.append(time.process_time() - begun)
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    computed = sum(len(pack.Stream.of(part).ids) for part in pack.split(batch, 16384))
    return {"seconds": statistics.median(seconds[1:]), "mb": mb, "tokens": len(batch.ids), "computed": computed}


def apart(tree: bool, shape: list[int]) -> float:
    """The largest relative error of a weight's gradient by norm, held against the plain pass in float64."""
    import copy

    from training.learner.learner import Learner, Optim
    from training.rl.objective import PolicyObjective
    from training.rl.policy_loss.clip import clip
    from training.rl.ratio.token import token

    ours, gradients = model(), []
    for exact in (False, True):
        learner = Learner(copy.deepcopy(ours).double() if exact else ours, Optim(lr=0.0, max_grad_norm=1e9))
        learner.step(packed(shape, tree and not exact), PolicyObjective(ratio=token, policy_loss=clip))
        gradients.append([g.double() for p in learner.weights if (g := p.grad) is not None])
    return max(float((a - b).norm() / b.norm()) for a, b in zip(*gradients, strict=True))


def model() -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from training.model.attention import NAME

    torch.set_num_threads(2)
    torch.manual_seed(0)
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=512, hidden_size=128, intermediate_size=384, num_hidden_layers=4, **heads)
    )
    model.set_attn_implementation(NAME)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs="+", help="one measurement: what the benchmark starts for each")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each case and way")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each measurement, after one that warms up")
    parser.add_argument(
        "--only", nargs="+", default=[*WAYS, "gradients", "times"], help="measure these; keep other results"
    )
    args = parser.parse_args()
    if args.child:
        what, ways, *shape = args.child
        sizes = [int(n) for n in shape]
        tree, words = what == "here", ways.split(",")
        print(json.dumps({"error": apart(tree, sizes)} if "error" in words else step(tree, words, sizes, args.steps)))
        return
    for case in args.only:
        if case in WAYS:
            keep(session_step(case, args.turns, args.steps))
        elif case == "gradients":
            errors = {p: [1e6 * x["error"] for x in xs] for p, xs in measured(1, 1, "error", 3, TURNS, 24, 40).items()}
            keep([result("gradients against float64", "error", "1e-6, relative", "lower", errors, 3)])
        elif case == "times":
            for times in TIMES:
                keep(repeated(times, args.turns, args.steps))
        else:
            raise SystemExit(f"--only {case}: give {', '.join(WAYS)}, gradients or times")
    if "times" in args.only:
        plot(json.loads(RESULTS.read_text(encoding="utf-8")))


def session_step(case: str, turns: int, steps: int) -> list[dict]:
    """The step of AGENTS sessions of TURNS turns in one of the WAYS."""
    of = measured(turns, steps, ",".join(WAYS[case]) or "-", AGENTS, TURNS, 24, 40)
    name, out = f"{AGENTS} agents of {TURNS} turns, {case}", []
    for metric, called, unit in (
        ("seconds", "cpu_seconds", "s"),
        ("mb", "extra_mb", "MB"),
        ("computed", "computed", "tokens"),
    ):
        values = {p: [x[metric] for x in xs] for p, xs in of.items()}
        out.append(result(name, called, unit, "lower", values))
    print(f"{name}: {out[0]['ratio_to_best_peer']} times as fast, {out[1]['ratio_to_best_peer']} of memory", flush=True)
    return out


def repeated(times: int, turns: int, steps: int) -> list[dict]:
    """The step of one size of tree whose tokens stand `times` times in the rows."""
    each = 2 * times - 1  # rows of 1, 2, ... turns hold the tokens (turns + 1) / 2 times
    of = measured(turns, steps, "-", 4, each, 400 // each, 400 // each)
    one, out = of["here"][0], []
    name = f"tokens {one['tokens'] / one['computed']:.1f} times in the rows"
    for metric, called, unit in (("seconds", "cpu_seconds", "s"), ("computed", "computed", "tokens")):
        out.append(result(name, called, unit, "lower", {p: [x[metric] for x in xs] for p, xs in of.items()}))
    print(f"{name}: {out[0]['value'] / out[0]['peers']['plain']:.3f} of the time", flush=True)
    return out


def keep(new: list[dict]) -> None:
    """Writes the results of a case in the place of its former ones, cases in the order of the whole benchmark."""
    order = [f"{AGENTS} agents of {TURNS} turns, {way}" for way in WAYS] + ["gradients against float64"]
    old = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    out = [r for r in old if r["case"] not in {n["case"] for n in new}] + [n | {"command": COMMAND} for n in new]

    def place(r: dict) -> tuple[int, float]:
        if r["case"] in order:
            return order.index(r["case"]), 0.0
        return len(order), float(r["case"].split()[1])

    RESULTS.write_text(json.dumps(sorted(out, key=place), indent=1) + "\n", encoding="utf-8")


def measured(turns: int, steps: int, ways: str, *shape: int) -> dict[str, list[dict]]:
    of: dict[str, list[dict]] = {"here": [], "plain": []}
    for _ in range(turns):
        for provider, into in of.items():
            got = child(provider, ways, *map(str, shape), "--steps", str(steps), module="benchmarks.prefix_tree")
            if isinstance(got, str):
                raise SystemExit(f"{provider}, {ways}: {got}")
            into.append(got)
    return of


def plot(results: list[dict], path: Path = PICTURE) -> None:
    """Draws the share of the plain time over how often tokens stand in the rows, and the ideal."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "espalier"  # the same file from the same numbers
    import matplotlib.pyplot as plt

    of = {(r["case"], r["metric"]): r for r in results if "times in the rows" in r["case"]}
    cases = list(dict.fromkeys(case for case, _ in of))
    shares = [of[c, "computed"]["value"] / of[c, "computed"]["peers"]["plain"] for c in cases]
    took = [of[c, "cpu_seconds"]["value"] / of[c, "cpu_seconds"]["peers"]["plain"] for c in cases]
    times = [1 / s for s in shares]
    figure, panel = plt.subplots(figsize=(6, 4))
    panel.plot(times, took, "o-", color="#14865a", label="time of a step")
    panel.plot(times, shares, "--", color="#8a93a3", label="tokens computed (the ideal)")
    panel.set(xlabel="how often a token stands in the rows", ylabel="share of the plain step", ylim=(0, None))
    panel.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
