"""`espalier estimate`: what training a model takes on given devices, by part, and the smallest setting that fits, before
anything starts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flows.cli._text import columns, dump
from flows.overrides import blamed, merged, of_profile, overrides
from tasks.core.errors import UserError
from tasks.core.paths import project

if TYPE_CHECKING:
    from tasks.planning.devices import Machines
    from tasks.planning.estimate import Setting


def add(commands: Any) -> None:
    p = commands.add_parser("estimate", help="memory and time of training a model on given devices, and what fits")
    p.add_argument(
        "--model",
        metavar="NAME",
        help="a folder, a config.json, a GGUF file or a Hub name; no weights are read (default: sft.model)",
    )
    p.add_argument(
        "--gpus", required=True, metavar="8xH200", help="how many devices and which; 2x8xH200 for two machines"
    )
    p.add_argument("--stage", action="append", metavar="STAGE", help="sft, reward, prefer or rl (default: all)")
    p.add_argument(
        "--place", action="store_true", help="which devices sample and which learn in a step of rl, and what that saves"
    )
    p.add_argument("--recipe", metavar="NAME", help="the recipe whose settings are estimated")
    p.add_argument("--set", metavar="STAGE.KNOB=VALUE", action="append", default=[], help="as of `espalier run`")
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    p.set_defaults(run=estimate)


def estimate(args: argparse.Namespace) -> int:
    from tasks.planning import estimate as task
    from tasks.planning import plan
    from tasks.core.config import read_yaml
    from tasks.planning.devices import machines

    at = machines(args.gpus)
    _check(args)
    root = project()
    changes = overrides(args.recipe, [*args.set, *([f"sft.model={args.model}"] if args.model else [])])
    file = root / "params.yaml"
    known = read_yaml(file) if file.exists() else {}
    if "profile" not in changes and known.get("profile", "cpu") in ("cpu", "quick"):
        changes["profile"] = "gpu"  # the other two use the size of the model that they make
    changes |= of_profile(file, changes)
    with blamed(changes):
        plans = plan.plans(root, changed=lambda params: merged(params, changes), to_run=False)
    name = plans["sft"]["params"]["model"]
    if not name:
        raise UserError(
            "estimate: no model is named: give --model with a folder, a config.json, a GGUF file or a Hub name"
        )
    size = task.size_named(name)
    used = [f"--set profile={changes['profile']}"] if "profile" in changes else []
    together = f"  all: {' '.join([*used, f'--set sft.model={name}'])}"
    if args.place:
        return _placed(name, size, plans["rl"], at, args, together)
    place = plans["_run"].get("place", {})
    stages = [n for n in task.TRAINED if n in plans and (not args.stage or n in args.stage)]
    rows: list[tuple[Setting | None, Setting | None, str, str]] = []
    for stage in stages:
        for method in task.METHODS:
            samplers = place.get(stage, {}).get("samplers", 1)
            fitting = list(task.settings(stage, plans[stage], size, at, method, samplers))
            if fitting or "lora" in plans[stage]["params"] or method == "full":
                rows.append((task.smallest(fitting), task.quickest(fitting), stage, method))
    if args.json:
        dump(
            {
                "model": name,
                "parameters": size.parameters,
                "gpus": args.gpus,
                "predicted": [
                    {"stage": stage, "method": method, "smallest": _plain(small), "quickest": _plain(quick)}
                    for small, quick, stage, method in rows
                ],
            }
        )
        return 0
    gib = at.device.memory / 2**30
    print(
        f"{name}: {size.parameters / 1e9:.2f} billion weights in {size.layers} layers; {at.devices} x {at.name} with {gib:.0f} GiB each, "
        f"of which {task.FREE:.0%} may be taken.\nEvery number is predicted: memory of the device with most, in GiB, and seconds of a step "
        f"whose rows are all as long as they may be."
    )
    for title, chosen in (
        ("The smallest that fits", [(small, stage, method) for small, _, stage, method in rows]),
        ("The quickest on all of them", [(quick, stage, method) for _, quick, stage, method in rows]),
    ):
        print(f"\n{title}")
        print(_table(chosen))
    print("\nTo copy (the smallest; all weights where they fit, else adapters):")
    for stage in stages:
        fits = next((s for s, _, n, _ in rows if n == stage and s is not None), None)
        if fits is None:
            print(f"  {stage}: nothing fits: take more or larger devices, or a smaller model")
        else:
            print(f"  {stage} ({fits.method}): {' '.join(fits.flags(plans[stage])) or 'as it is'}")
    print(together)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises UserError for stages that are not trained, and for settings of what is looked for."""
    from tasks.core.errors import nearest
    from tasks.core.labels import TRAINED

    for stage in args.stage or ():
        if stage not in TRAINED:
            raise UserError(f"--stage {stage}: {nearest(stage, TRAINED)}")
        if args.place and stage != "rl":
            raise UserError(f"--place is of the stage rl, and --stage names {stage}: write --stage rl")
    for setting in args.set:
        key = setting.partition("=")[0]
        if key.partition(".")[2] in ("learners", "shards", *(["samplers"] if args.place else [])):
            raise UserError(
                f"--set {setting}: estimate tries every number of {'samplers, ' if args.place else ''}learners and shards "
                f"that {args.gpus} has: leave it out, or name other devices with --gpus"
            )


def _placed(
    name: str, size: Any, plan: Mapping[str, Any], at: Machines, args: argparse.Namespace, together: str
) -> int:
    """The plans of a step of rl, by piece, and how to run those that the stage carries out; `together`: the last line."""
    from tasks.lab.placement import _stage
    from tasks.planning import estimate as task

    # all weights where they fit, else adapters
    for method in ("lora",) if plan["params"]["lora"].get("rank") else task.METHODS:
        steps, settings = _stage.of_stage(plan, size, at, method)
        if steps:
            break
    else:
        raise UserError(f"--place: nothing fits {args.gpus}: take more or larger devices, or a smaller model")
    rows = _stage.rows(steps, at.devices)
    words = [_stage.flags(row, settings[row.order, row.knobs["learners"]], plan) if row.knobs else None for row in rows]
    if args.json:
        plain = [{**vars(row), "set": said} for row, said in zip(rows, words, strict=True)]
        dump({"model": name, "gpus": args.gpus, "stage": "rl", "method": method, "predicted": plain})
        return 0
    print(
        f"{name}: a step of rl ({method}) on {at.devices} x {at.name}. Seconds are predicted, and saved is the share of those "
        f"of the symmetric plan.\n"
    )
    cells: list[list[Any]] = [["order", "plan of", "s", "saved", "sampling", "reference", "training", "carried out"]]
    for row in rows:
        at_once = [_range(*row.plan[c]) if c in row.plan else "-" for c in ("generate", "reference", "train")]
        if row.plan["generate"][1] == at.devices:
            at_once[0] = "first learner"
        saved = "-" if row.saved is None else f"{row.saved:.0%}"
        cells.append([row.order, row.piece, _seconds(row.seconds), saved, *at_once, row.why or "yes"])
    print(columns(cells))
    if all(row.piece != "enumerated" for row in rows):
        print("enumerated: there are too many plans to try them all")
    print("\nTo copy:")
    for row, said in zip(rows, words, strict=True):
        if said is not None and row.piece in ("symmetric", _stage.CARRIED):
            print(f"  {row.order}, {row.piece}: {' '.join(said) or 'as it is'}")
    if True not in steps:
        print("  one step ahead: nothing fits, because the learner's process keeps whole weights and a copy of them")
    if rows[0].saved is None:
        print(f"  in turn, symmetric: {at.devices} learners of which the first samples do not fit")
    print(together)
    return 0


def _range(first: int, n: int) -> str:
    return str(first) if n == 1 else f"{first}-{first + n - 1}"


PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "gathered": "gathered",
    "activations": "activations",
    "head": "head",
    "reference": "reference",
    "critic": "critic",
    "cache": "cache",
    "whole model of the first process": "whole",
    "process": "process",
}
TIMES = ("compute", "waiting", "optimizer", "sampling")


def _table(rows: list[tuple[Setting | None, str, str]]) -> str:
    shown = [k for k in PARTS if any(s and k in s.memory for s, *_ in rows)]
    times = [k for k in TIMES if any(s and k in s.time for s, *_ in rows)]
    several = any(s and s.samplers > 1 for s, *_ in rows)
    head = ["stage", "trains", "learners", *(["samplers"] if several else []), "shards", "again", "tokens"]
    head += [PARTS[k] for k in shown] + ["GiB"] + [f"{k} s" for k in times] + ["s"]
    cells: list[list[Any]] = [head]
    for s, stage, method in rows:
        if s is None:
            cells.append([stage, method, "does not fit"])
            continue
        again = "yes" if s.knobs.get("gradient_checkpointing") else "no"
        cells.append(
            [stage, method, s.learners, *([s.samplers] if several else []), s.shards, again]
            + [s.knobs["tokens_per_microbatch"]]
            + [_gib(s.memory.get(k)) for k in shown]
            + [_gib(s.total)]
            + [_seconds(s.time.get(k)) for k in times]
            + [_seconds(sum(s.time.values()))]
        )
    return columns(cells)


def _gib(n: float | None) -> str:
    return "-" if n is None else f"{n / 2**30:.1f}"


def _seconds(s: float | None) -> str:
    return "-" if s is None else f"{s:.2f}" if s < 10 else f"{s:.0f}"


def _plain(s: Setting | None) -> Mapping[str, Any] | None:
    return None if s is None else {k: v for k, v in vars(s).items() if k not in ("stage", "method")}
