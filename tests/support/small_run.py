"""The bytes of a small run, to compare commits: `python -P tests/support/small_run.py TREE OUT`.

TREE is a checkout of any commit from the day before the packages were sorted by subject on. Every stage runs on a few
rows and steps, seed 3, one thread, in the environment of this interpreter; what it wrote is left in OUT, and
OUT/sums.json has the SHA-256 of each file. `python -P tests/support/small_run.py --compare OUT OUT` says which differ.
Knobs that had another name then get it here; stages and knobs that came later are left out or turned off.
"""

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

SIZES = {
    "kb": {"sources": [], "world_countries": 12},
    "questions": {"n_train": 30, "n_valid": 3, "n_test": 3},
    "problems": {"families": [{"piece": "countdown", "levels": [1]}], "n_train": 12, "n_valid": 2, "n_test": 2},
    "demonstrations": {"n": 16, "n_valid": 2, "n_family": 4},
    "sft": {
        **{"hidden": 16, "layers": 1, "heads": 2, "kv_heads": 1, "intermediate": 32},
        **{"vocab_size": 400, "max_length": 256, "base_steps": 5, "base_lists_steps": 1, "base_rows": 4},
        **{"steps": 7, "rows_per_step": 4, "checkpoint_every": 2},
    },
    "preferences": {"n_family": 10, "n_valid": 2, "sampled_problems": 0, "sampled_valid": 0},  # planted pairs alone
    "clean": {"cleaners": [{"piece": "duplicates"}]},
    "reward": {"steps": 5, "pairs_per_step": 4, "checkpoint_every": 2},
    "prefer": {"steps": 6, "pairs_per_step": 4, "checkpoint_every": 2, "leave_out": [], "sft_weight": 0.2},
    "rl": {
        **{"steps": 6, "prompts_per_step": 2, "samples_per_prompt": 2, "checkpoint_every": 2},
        **{"sampling": {"max_turn_tokens": 4}, "curriculum": {"piece": "success_band"}},
        "advantage": {"piece": "reinforce", "decay": 0.5},
        # Entropy moves the weights of a model that earns nothing.
        "regularisers": [{"piece": "kl", "coef": 0.01}, {"piece": "entropy", "coef": 0.01}],
    },
    "evaluate": {
        **{"questions": 3, "samples": 2, "per_family": 2, "family_samples": 1, "blanked_samples": 1},
        **{"sampling": {"max_turn_tokens": 4}, "batch_size": 2, "metrics": [{"piece": "pass_at_k", "ks": [1, 2]}]},
    },
}
BEFORE = {"demonstrations": "trajectories", "batch_size": "wave"}  # what a stage or a knob was called
NESTED = ("sampling",)  # knobs whose fields were knobs
LATER = ("sampled_problems", "sampled_valid", "leave_out")  # left out where there are none


def knobs(tree: Path, stage: str) -> set[str]:
    """The knobs of a stage in a checkout."""
    text = (tree / "tasks/stages" / f"{stage}.py").read_text(encoding="utf-8")
    functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == stage)
    return {arg.arg for arg in next(functions).args.kwonlyargs}


def sizes(tree: Path) -> dict[str, dict]:
    """SIZES in the words of a checkout."""
    out = {}
    for stage, wanted in SIZES.items():
        name = stage if (tree / "tasks/stages" / f"{stage}.py").exists() else BEFORE[stage]
        known, out[name] = knobs(tree, name), {}
        for knob, value in wanted.items():
            if knob in NESTED and knob not in known:
                out[name] |= value
            elif knob in known or knob not in LATER:
                out[name][knob if knob in known else BEFORE.get(knob, knob)] = value
    return out


def run(tree: Path, out: Path) -> dict[str, str]:
    """Runs every stage of a checkout; file -> SHA-256, stages by today's names. Raises CalledProcessError."""
    wanted = sizes(tree)
    own = out / ("pieces/profiles" if (tree / "flows/recipes/core").exists() else "pieces/flows/profiles")
    own.mkdir(parents=True)
    own.joinpath("small.yaml").write_text("title: small\nthreads: 1\n")
    params = {"seed": 3, "recipe": "grpo", "profile": "small", "tracking": "off", "set": wanted}
    (out / "params.yaml").write_text(json.dumps(params))  # which is YAML
    env = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    plan = "import pathlib; from tasks.planning import plan; plan.write(pathlib.Path('.'))"
    for command in (["-c", plan], *(["-m", f"flows.{stage}"] for stage in wanted)):
        subprocess.run([sys.executable, "-P", *command], cwd=out, env=env, check=True)
    sums = {}
    for path in sorted((out / "artifacts").rglob("*")):
        name = path.relative_to(out / "artifacts").as_posix().replace("trajectories", "demonstrations")
        if path.is_file() and not name.startswith("plan/"):
            sums[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (out / "sums.json").write_text(json.dumps(sums, indent=1))
    return sums


def differing(one: Path, other: Path) -> list[str]:
    """A line for each file that is not the same in both."""
    a, b = (json.loads((folder / "sums.json").read_text()) for folder in (one, other))
    return [
        f"{'differs' if f in a and f in b else 'only in the first' if f in a else 'only in the second'}: {f}"
        for f in sorted(a.keys() | b.keys())
        if a.get(f) != b.get(f)
    ]


if __name__ == "__main__":
    if sys.argv[1] == "--compare":
        print("\n".join(differing(Path(sys.argv[2]), Path(sys.argv[3]))) or "all the same")
    else:
        print(len(run(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())), "files")
