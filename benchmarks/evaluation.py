"""How long evaluating, reporting and comparing take: `make bench-evaluation`, in a checkout (or --project DIR) where a
run has finished.

    rollouts     1,000 questions × 8 samples of the trained RL model, search tool included, as the stage `evaluate`
                 plays them
    judged       the reward model's word about every rollout, and the hidden state of every question: what two of the
                 metrics read
    metrics      every metric of `ITEMS` over those 8,000 rows, intervals included: the stage's default ones, self-BLEU,
                 best of n, stability under changed rewards, geometry, paired tests of three other models with the
                 correction for their number, and the matrix of training domain × test domain. The result names the
                 numbers of each; it is refused where one of them is missing
    report       the stage `report` on that project
    compare      `espalier compare HEAD workspace` as a process of its own, interpreter and page included

Wall-clock seconds by the monotonic clock; the profile's two threads. What is short is done five times, and its median,
least and greatest given. The other models are the same rows with their scores shuffled: what a number costs does not
depend on what it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import result_row
from tasks.core.paths import CODE as ROOT

PROBLEMS, SAMPLES, TIMES, THREADS = 1000, 8, 5, 2
RESULTS = ROOT / "benchmarks" / "results"
ITEMS = {  # what is asked of an evaluation -> numbers without which it was not timed
    "unbiased pass@k": ("pass@1", "pass@8"),
    "majority@k": ("majority@8",),
    "best of n with a reward model": ("best_of@8", "bon_gap@8"),
    "exact match and F1": ("exact_match", "f1"),
    "tool calls and tokens per right answer": ("calls_per_right", "tokens_per_right"),
    "calibration": ("ece", "brier", "aurc"),
    "diversity": ("distinct@1", "distinct@2", "answer_entropy", "self_bleu"),
    "length, format, refusal": ("length", "format", "refusal"),
    "length bias": ("length_correlation", "length_gap"),
    "stability under changed rewards": ("tv", "tv_greedy", "ties"),
    "geometry of representations": ("rank_me", "alpha"),
    "paired tests, corrected for their number": ("difference", "p_holm"),
    "training domain × test domain": ("own", "others", "ratio"),
}
MORE = [{"piece": p} for p in ("self_bleu", "reward_stability", "geometry")] + [{"piece": "best_of_n", "ns": [2, 4, 8]}]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", type=Path, default=ROOT, help="where a run has finished (default: the checkout)")
    args = parser.parse_args()
    project = args.project.resolve()
    results = [*played(project), *reported(project), *compared(project)]
    for r in results:
        print(f"{r['case']}: {r['value']:.2f} {r['unit']}")
    (RESULTS / "evaluation.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def result(case: str, seconds: list[float], n: int) -> dict[str, Any]:
    return result_row(
        case,
        "seconds",
        statistics.median(seconds),
        "s",
        "make bench-evaluation",
        n,
        better="lower",
        low=min(seconds),
        high=max(seconds),
        device=f"{os.cpu_count()} cores, {platform.machine()}; {THREADS} threads, a machine that others use too",
    )


def timed(work: Callable[[], Any]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def played(project: Path) -> list[dict[str, Any]]:
    """Rollouts, then the metrics over their rows."""
    import pandas as pd
    import torch

    from synth.types import Problem
    from tasks.knowledge import knowledge
    from tasks.models.prompt_states import prompt_features
    from tasks.models.reward_model import RewardModel
    from tasks.planning import plan
    from tasks.planning.pieces import bind
    from tasks.planning.settings import EvaluationSampling
    from tasks.stages.evaluate import row
    from tasks.storage import tables
    from training.model.model import load_model
    from training.model.render import Renderer
    from training.rollout.play import Player
    from training.rollout.torch_sampler import TorchSampler

    torch.set_num_threads(THREADS)
    params = plan.plans(project, changed=lambda p: {**p, "set": {}})["evaluate"]["params"]
    problems = tables.read(project / "artifacts/questions/problems.parquet", Problem)[:PROBLEMS]
    model, tokenizer = load_model(project / "artifacts/rl/model")
    renderer = Renderer(tokenizer)
    player = Player(
        sampler=TorchSampler(model, renderer.end_id),
        renderer=renderer,
        envs={e["piece"]: bind("env", e)() for e in params["envs"]},
        tools={
            "search": knowledge.load(project / "artifacts/kb/passages.parquet", k=params["sampling"]["search_top_k"])
        },
        max_tokens=params["sampling"]["max_tokens"],
        sampling=EvaluationSampling(**params["sampling"]).turn(),
        batch_size=params["batch_size"],
    )
    groups: list[Any] = []
    seconds = timed(lambda: groups.extend(player.play(problems, SAMPLES, 0, "bench")))
    frame = pd.DataFrame([row(r, i) for g in groups for i, r in enumerate(g.rollouts)])
    rollouts = [r for g in groups for r in g.rollouts]
    read: dict[str, list[Any]] = {}

    def judged() -> None:
        word = json.loads((project / "artifacts/reward/card.json").read_text(encoding="utf-8"))["verdict"]
        read["reward"] = RewardModel(project / "artifacts/reward/model", word)(rollouts)
        read["features"] = prompt_features(model, rollouts)

    reading = timed(judged)
    frame = frame.assign(**read)
    metrics = [bind("metric", m) for m in [*params["metrics"], *MORE]]
    covers = covered(numbers(metrics, frame))
    size = f"{PROBLEMS:,} problems × {SAMPLES} samples"
    return [
        result(f"rollouts of {size}", [seconds], PROBLEMS * SAMPLES),
        result(f"reward model and hidden states of {size}", [reading], PROBLEMS * SAMPLES),
        result(f"every metric of {size}", [timed(lambda: numbers(metrics, frame)) for _ in range(TIMES)], TIMES)
        | {"covers": covers},
    ]


def numbers(metrics: Sequence[Callable], frame: Any) -> dict[str, Any]:
    """All metrics of a model's rows; the paired tests of three others against it; what training on the questions of one
    number of hops did for the others."""
    from tasks.evaluation.measure import by_problem, difference, over
    from training.metrics._tests import holm
    from training.metrics.transfer import transfer

    measured = over(metrics, frame, whole=True)
    others = [frame.assign(score=frame["score"].sample(frac=1.0, random_state=i).to_numpy()) for i in range(3)]
    pairs = [difference(other, frame) for other in others]
    measured |= {"difference": [p | {"p_holm": h} for p, h in zip(pairs, holm([p["p"] for p in pairs]), strict=True)]}
    hops = frame.drop_duplicates("problem").sort_values("problem")["hops"].astype(str).tolist()
    domains = sorted(set(hops))
    tables = {"": by_problem(frame), **dict(zip(domains, map(by_problem, others), strict=False))}
    scored = [[x for table in tables.values() for x in table[i]] for i in range(len(hops))]
    trained = [[name for name, table in tables.items() for _ in table[i]] for i in range(len(hops))]
    return measured | transfer(scored, trained, [[h] * len(s) for h, s in zip(hops, scored, strict=True)])


def covered(measured: Mapping[str, Any]) -> dict[str, list[str]]:
    """Item -> its numbers. Raises ValueError for one that is missing: its time would not be in the sum."""
    flat = measured.keys() | {key for pair in measured["difference"] for key in pair}
    if lacks := [f"{name} ({item})" for item, names in ITEMS.items() for name in names if name not in flat]:
        raise ValueError(
            f"evaluation: not measured: {', '.join(lacks)}: the project's settings or a metric's numbers have changed"
        )
    return {item: list(names) for item, names in ITEMS.items()}


def reported(project: Path) -> list[dict[str, Any]]:
    """The stage `report` in a folder of links, so that the project stays as it is."""
    from tasks.runtime.stage import Stage
    from tasks.stages.report import report
    from tasks.storage import commit

    with tempfile.TemporaryDirectory() as t:
        root = Path(t)
        (root / "artifacts").symlink_to((project / "artifacts").resolve())
        (root / ".espalier").mkdir()
        (root / ".espalier/measured").symlink_to((project / ".espalier/measured").resolve())
        commit.check(project / "artifacts/evaluate")
        stage = Stage("report", root=root)
        return [result("report", [timed(lambda: report(stage)) for _ in range(TIMES)], TIMES)]


def compared(project: Path) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        "-c",
        "import sys; from flows.cli import main; sys.exit(main(['compare', 'HEAD', 'workspace']))",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = lambda: subprocess.run(command, cwd=project, env=env, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
    run()  # the first reads code from a cold disk
    return [result("espalier compare", [timed(run) for _ in range(TIMES)], TIMES)]


if __name__ == "__main__":
    sys.exit(main())
