"""`espalier train --data FILE`: the common case in one command: from rows of your own and a method to a model and a
report."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError

KINDS = {"sft": "demonstrations", "prefer": "preferences", "rl": "problems"}  # stage that learns -> stage that reads
DEFAULT = {"sft": "sft", "prefer": "dpo", "rl": "grpo"}
ROWS = {"sft": "conversations", "prefer": "preference pairs", "rl": "problems"}
# Stages of a project that trains by one method, in the order of the graph.
STAGES = {
    "sft": ("plan", "demonstrations", "sft", "evaluate", "report"),
    "prefer": ("plan", "demonstrations", "preferences", "clean", "sft", "prefer", "evaluate", "report"),
    "rl": ("plan", "problems", "demonstrations", "sft", "rl", "evaluate", "report"),
}
HEAD = "# Written by `espalier train`. Every other value has a default: `espalier show`. `espalier run` goes on from here.\n"


def add(commands: Any) -> None:
    p = commands.add_parser("train", help="train a model on a file of your own, in one command, with its report")
    p.add_argument("--data", metavar="FILE", required=True, help="a file, a folder, or owner/name on the Hub")
    p.add_argument(
        "--model", metavar="PATH", default="", help="folder or Hub name to start from (default: a small one)"
    )
    p.add_argument(
        "--method", metavar="NAME", default="", help="sft, or a recipe such as dpo or grpo (default: by the columns)"
    )
    p.add_argument("--out", metavar="DIR", type=Path, help="the project to make (default: FILE-METHOD)")
    p.add_argument("--set", metavar="STAGE.KNOB=VALUE", action="append", default=[], help="change one value")
    p.add_argument("--no-run", action="store_true", help="write the project and stop")
    p.set_defaults(run=train)


def train(args: argparse.Namespace) -> int:
    """Raises UserError for a file that no method can learn from, and for a method that needs other rows."""
    from contextlib import chdir

    from flows.cli import init, parser, run
    from flows.overrides import blamed, merged, overrides
    from tasks.rows.guess import first
    from tasks.planning import plan

    row, n = first(args.data)
    kind, method = _method(args.method, row, args.data)
    local = Path(args.data).exists()
    name = f"{Path(args.data).stem}-{method}".replace(" ", "-")
    root = (args.out or Path(name)).resolve()
    fresh = _fresh(Path.cwd()) if args.out is None else None
    if fresh is False:
        raise UserError(
            f"{Path.cwd()} is a project already: add `{'prefer' if kind == 'prefer' else kind}: {{files: [...]}}` to `set` of its "
            "params.yaml and run `espalier run` (docs/own-rows.md), or name a new folder with --out"
        )
    created = False
    model = _model(args.model)
    if fresh:
        root = Path.cwd()
    else:
        if (root / "dvc.yaml").exists():
            raise UserError(
                f"{root} is a project already: `cd {root} && espalier run` goes on with it, `--out DIR` makes another"
            )
        created = not root.exists()
        init.make(root)
    where = _brought(args.data, root) if local else args.data
    settings = _settings(kind, method, where, model, n, bool(args.model))
    changes = overrides(None, args.set)
    params = merged(settings, changes)
    _write(root, params, STAGES[kind], kind, bool(args.model))
    with chdir(root):
        try:
            with blamed(changes):  # invalid settings raise UserError before anything starts
                plan.plans(root)
        except UserError:
            if created:  # so that the corrected command finds the folder free
                shutil.rmtree(root)
            raise
        print(f"{method} on {n:,} {ROWS[kind]}, in {root}: params.yaml has the settings.", flush=True)
        if not any("files" in key.split(".") for key in changes):  # else other keys may say how the rows are read
            _warn(where, kind, n)
        if args.no_run:
            return 0
        code = run.run(parser()[0].parse_args(["run"]))
    if code == 0:
        print(f"The report is {root / 'reports/index.html'}; go on with `cd {root} && espalier run --set ...`")
    return code


def _fresh(root: Path) -> bool | None:
    """Whether a folder is an unchanged project of `espalier init`; None if it is not a project."""
    from flows.cli.init import TEMPLATE

    if not (root / "dvc.yaml").exists():
        return None
    same = (root / "params.yaml").read_bytes() == (TEMPLATE / "params.yaml").read_bytes()
    return same and not (root / "dvc.lock").exists()


def _method(wanted: str, row: Mapping[str, Any], data: str) -> tuple[str, str]:
    """(stage that learns, method): as named, or guessed from the columns of the rows."""
    from tasks.rows.guess import fault, fits_of
    from tasks.planning.resolve import recipe_layers

    fits = fits_of(row)
    if not fits:
        why = fault(row)
        raise UserError(
            f"{data} has the columns {', '.join(map(str, row))}{f', and no row that can be learned from ({why})' if why else ''}: needed are chosen and rejected (pairs), messages or prompt and "
            "completion (conversations), or question and answer (problems)"
        )
    if not wanted:
        return fits[0], DEFAULT[fits[0]]
    if wanted == "sft":
        kind = "sft"
    else:
        touched = {name for layer in recipe_layers(wanted) for name in layer.stages}
        kind = next((k for k in ("rl", "prefer", "sft") if k in touched), "")
        if not kind:
            raise UserError(f"the recipe {wanted} trains no model on rows: it sets {', '.join(sorted(touched))}")
    if kind not in fits:
        raise UserError(
            f"{wanted} learns from {ROWS[kind]}, and {data} has the columns {', '.join(map(str, row))}, which are "
            f"{' or '.join(ROWS[k] for k in fits)}: choose {' or '.join(DEFAULT[k] for k in fits)}, or see docs/own-rows.md"
        )
    return kind, wanted


def _warn(data: str, kind: str, n: int) -> None:
    """Says which rows will be left out, before hours go by: of a large file, as far as its first rows tell."""
    from tasks.rows.guess import unusable

    looked, bad = unusable(data, kind)
    if bad:
        of = f"{n:,} rows" if looked == n else f"the first {looked:,} rows"
        print(
            f"warning: {len(bad):,} of {of} cannot be used; the first: {bad[0].id}: {bad[0].reason}: {bad[0].evidence[:200]}",
            file=sys.stderr,
        )


def _model(model: str) -> str:
    """The model's absolute path, because the project is in another folder. Raises UserError if it does not exist."""
    if model and Path(model).exists():
        return str(Path(model).resolve())
    if model and (model.startswith((".", "/", "~")) or model.count("/") > 1):
        raise UserError(f"--model {model} does not exist: give a folder with a model, or owner/name on the Hub")
    return model


def _brought(data: str, root: Path) -> str:
    """The file or folder below data/ of the project, where DVC watches it."""
    path, to = Path(data).resolve(), root / "data" / Path(data).name
    if path == to.resolve():
        return f"data/{to.name}"
    if path.is_dir():
        shutil.copytree(path, to, dirs_exist_ok=True)
    else:
        to.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, to)
    return f"data/{to.name}"


def _settings(kind: str, method: str, where: str, model: str, n: int, given: bool) -> dict[str, Any]:
    """The content of params.yaml: steps by the number of rows, learning rates for a pretrained model or for a small new
    one."""

    def steps(epochs: float, least: int, rows: int = 16) -> int:
        return max(least, math.ceil(epochs * 0.75 * n / rows))

    device = _device()
    place: dict[str, Any] = {"device": device, "dtype": "bfloat16"}
    learner_place = place
    if device == "cpu":  # two rows of the greatest length at a time: a model of 0.1 billion weights then takes 10 GiB
        place, learner_place = {}, {"tokens_per_microbatch": 4096}
    doors: dict[str, Any] = {KINDS[kind]: {"files": [where]}}
    if given:
        long = {"max_length": 2048}
        sft = {
            "model": model,
            "optimizer": {"kind": "adamw", "lr": 2e-5},
            "context_weight": 0.0,
            **long,
            **learner_place,
        }
        sft["steps"] = steps(3, 20) if kind == "sft" else 0
        prefer = {"steps": steps(2, 20), "optimizer": {"lr": 2e-6}, **long, **learner_place}
        rl = {
            "steps": 100,
            "optimizer": {"lr": 1e-6},
            "sampling": {"max_turn_tokens": 256, "max_tokens": 1024},
            **learner_place,
        }
        turns = {"max_turn_tokens": 256, "max_tokens": 2048}
    else:
        sft = {"base_steps": 150, "base_lists_steps": 30, "steps": steps(12, 150)}
        prefer, rl = {"steps": steps(8, 60)}, {"steps": 60}
        turns = {}
        if kind == "prefer":  # a small new model is first fine-tuned on the chosen answers
            doors["demonstrations"] = {"files": [where]}
        if kind == "rl":  # and on the answers of the problems
            doors["demonstrations"] = {"n": 0, "n_valid": 0, "n_family": 1000}
    first = "base" if given or kind == "sft" else "sft"
    models = ["base"] + (["sft"] if first == "sft" else []) + [kind]
    evaluate = {"models": models, "against": first, "samples": 4, "per_family": 100, **place}
    evaluate |= {"sampling": turns} if turns else {}
    evaluate["metrics"] = [{"piece": "pass_at_k", "ks": [1, 4]}, {"piece": "format_and_refusal"}]
    learner = {} if kind == "sft" else {kind: {"prefer": prefer, "rl": rl}[kind]}
    return {
        "recipe": "" if method == "sft" else method,
        "profile": "cpu",
        "seed": 0,
        "tracking": "local",
        "set": {**doors, "sft": sft, **learner, "evaluate": evaluate},
    }


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _write(root: Path, params: Mapping[str, Any], stages: tuple[str, ...], kind: str, given: bool) -> None:
    """Writes params.yaml, and dvc.yaml with the stages that the method needs."""
    import yaml

    from flows.cli.init import TEMPLATE
    from tasks.core.config import read_yaml

    graph = read_yaml(TEMPLATE / "graph.yaml")
    kept = [s for s in stages if not (given and kind != "sft" and s == "demonstrations")]
    gone = {f"artifacts/{s}" for s in graph["stages"] if s not in kept}

    def there(path: str) -> bool:
        return not any(path == g or path.startswith(f"{g}/") for g in gone)

    graph["stages"] = {
        name: {k: [d for d in v if there(d)] if k == "deps" else v for k, v in body.items()}
        for name, body in graph["stages"].items()
        if name in kept
    }
    graph["artifacts"] = {k: v for k, v in graph.get("artifacts", {}).items() if there(v["path"])}
    graph["plots"] = [p for p in graph.get("plots", []) if there(next(iter(p)))]
    # removed stages can be copied back from flows/template/graph.yaml, which has the whole graph
    (root / "dvc.yaml").write_text(
        "# The stages that this method needs; `espalier init` makes a project with all of them.\n"
        + yaml.safe_dump(graph, sort_keys=False, width=120),
        encoding="utf-8",
    )
    (root / "params.yaml").write_text(
        HEAD + yaml.safe_dump(dict(params), sort_keys=False, default_flow_style=None, width=120), encoding="utf-8"
    )
