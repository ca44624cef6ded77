"""`espalier run`: run the whole pipeline, or print what a change of recipe or settings would run."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli._before import check, due
from flows.cli._text import count, dump
from flows.overrides import blamed, merged, of_profile, overrides
from tasks.core.errors import TRANSIENT, StageError, UserError, may_pass, nearest
from tasks.core.findings import accepted
from tasks.core.paths import inside

if TYPE_CHECKING:
    from tasks.runtime.side_by_side import Cost

SHOWN = (
    "pass",
    "majority",
    "calls",
    "tokens_per_right",
)  # metrics in the final table of a run, by the part before @


def add(commands: Any) -> None:
    p = commands.add_parser("run", help="run the pipeline; what has not changed is not run again")
    p.add_argument(
        "--recipe", metavar="NAME", help="run this recipe as a DVC experiment (`espalier recipes` lists them)"
    )
    p.add_argument(
        "--set",
        metavar="STAGE.KNOB=VALUE",
        action="append",
        default=[],
        help="change one value, e.g. rl.steps=50 or seed=1; may be repeated",
    )
    p.add_argument(
        "--accept",
        metavar="FINDING",
        action="append",
        default=[],
        help="train on a third-party environment despite this finding of `espalier env audit`; it is recorded with the "
        "run; may be repeated",
    )
    p.add_argument(
        "--stage", default="", metavar="STAGE", help="only this stage and what it reads (default: all that has changed)"
    )
    p.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would run and which values differ from the last plan, and stop",
    )
    p.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    p.add_argument(
        "--json", action="store_true", help="print the summary of the run as JSON; everything else goes to stderr"
    )
    p.add_argument(
        "--watch", action="store_true", help="run under Prefect: every stage and its steps can be watched in a browser"
    )
    p.add_argument(
        "--jobs",
        type=count,
        default=1,
        metavar="N",
        help="most independent stages to run at a time (default 1)",
    )
    p.add_argument("--cores", type=count, default=0, metavar="N", help="cores that --jobs may use (default: all)")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tasks.planning import plan
    from tasks.planning.rates import warnings
    from tasks.runtime import dvc
    from tasks.runtime.stage import REMEDY, graph
    from tasks.storage import commit

    root = inside()
    dvc.versioned(root)
    args.set += accepted(args.accept)
    if args.stage and args.stage not in (known := graph(root)):
        raise UserError(f"--stage {args.stage}: {nearest(args.stage, known)}")
    changes = overrides(args.recipe, args.set)
    for key, value in (sized := of_profile(root / "params.yaml", changes)).items():
        print(
            f"{key.removeprefix('set.')} is {json.dumps(value)}, as profile {changes['profile']} says, not what params.yaml has",
            file=sys.stderr,
        )
    changes |= sized
    with blamed(changes):  # invalid settings raise UserError before anything starts
        plans = plan.plans(root, changed=lambda params: merged(params, changes))
    if not changes:
        dvc.warn_of_index(root)
    present = {name: plans[name] for name in graph(root) if name in plans}  # a project of one method has fewer stages
    for line in [*warnings(present), *_machine(present)]:
        print(line, file=sys.stderr)
    if args.dry_run:
        return _dry(root, plans, args.stage)
    if args.jobs < 1:
        raise UserError("--jobs must be 1 or more")
    check(root, [plans], args.stage)
    if args.watch:
        if args.stage:
            raise UserError("--watch runs all stages: leave --stage or --watch out")
        if args.jobs > 1:
            raise UserError("--watch runs one stage after the other: leave --jobs or --watch out")
        return _watch(root, args)
    if args.quiet:
        os.environ["ESPALIER_QUIET"] = "1"
    with _stdout_is_stderr() if args.json or args.quiet else nullcontext():
        with dvc.alone(root):
            code = _run(root, changes, plans, quiet=args.quiet, jobs=args.jobs, cores=args.cores, stage=args.stage)
    path = root / "reports" / "summary.json"
    if args.json and code == 0 and path.exists():
        dump(commit.read_json(path.parent, path.name, remedy=REMEDY))
    return code


@contextmanager
def _stdout_is_stderr() -> Iterator[None]:
    """Sends the output of DVC and the stages to stderr, so that stdout has only the result."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _watch(root: Path, args: argparse.Namespace) -> int:
    """Runs the flow `pipeline` in this process. If no server runs, one is started and ended with the run; its database
    is kept."""
    from tasks.schedule import server

    print("looking for a Prefect server ...", file=sys.stderr, flush=True)
    url, fresh = server.settle(root)
    with server.running(root, url) if fresh else nullcontext():
        from flows.pipeline import watch

        with server.client() as api:
            server.prepare(api)
        print(f"Watch it at {server.link(root, url)}", file=sys.stderr, flush=True)
        code, message = watch(recipe=args.recipe, settings=tuple(args.set), promote=False)
    if code:
        print(
            f"\nThe run stopped: {message}. What was finished stays finished: `espalier run` goes on from there.",
            file=sys.stderr,
        )
        return code
    _table(root)
    return 0


def _run(
    root: Path,
    changes: dict[str, Any],
    plans: Mapping[str, Any],
    *,
    quiet: bool = False,
    jobs: int = 1,
    cores: int = 0,
    stage: str = "",
) -> int:
    """Runs what has changed, of one stage and what it reads if `stage` names one. Returns 0, TRANSIENT where the stage
    that failed may succeed if it is tried again, else 1."""
    from tasks.results import garbage
    from tasks.runtime import dvc, process, warm
    from tasks.runtime import termination as ending
    from tasks.tracking import spool

    ending.on_sigterm("run")  # so that DVC and its stage are ended too
    key = f"run-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    begin = time.monotonic()
    env = {spool.EXECUTION: key}
    # The user's own folders may be outside the project, where DVC does not look. So resolve again; the plan files show
    # what changed.
    if os.environ.get("ESPALIER_PATH") and not changes:
        dvc.run(["repro", "-q", "-s", "-f", "plan"], root, env)
    spool.open_execution(root, key, process.look(os.getpid()))
    say = lambda line: None if quiet else print(line, file=sys.stderr)  # noqa: E731
    threads = max((int(p.get("threads", 2)) for p in plans.values()), default=2)
    targets = [stage] if stage else []
    warmed = nullcontext({}) if jobs > 1 else warm.beside(threads)  # stages of several jobs have groups of their own
    with spool.shipped(root, key, env, say, changes=changes), warmed as warm_env:
        env |= warm_env
        try:
            for last in (False, True):
                before = garbage.outputs(root)
                if jobs > 1:
                    code = _side_by_side(root, changes, env, jobs, cores, say, stage)
                else:
                    code = dvc.experiment(changes, root, env, targets) if changes else dvc.reproduce(root, env, targets)
                bad = [] if code else garbage.restored(root, before)
                if not bad:
                    break
                for line in bad:
                    print(f"warning: {line}: removed{'' if last else ', and made anew now'}", file=sys.stderr)
            else:
                code = 1
        except KeyboardInterrupt:
            print(f"run: interrupted; {ending.KEPT}", file=sys.stderr)
            raise
    if code:
        print(
            "\nThe run stopped; the lines above say why. What was finished stays finished: `espalier run` goes on from there.",
            file=sys.stderr,
        )
        return TRANSIENT if code == TRANSIENT else 1
    if not quiet:
        print(f"\nDone in {time.monotonic() - begin:.0f} s.\n")
        _table(root)
    return 0


def _side_by_side(
    root: Path,
    changes: dict[str, Any],
    env: dict[str, str],
    jobs: int,
    cores: int,
    say: Callable[[str], None],
    only: str = "",
) -> int:
    """Runs independent stages concurrently, of the stage `only` and what it reads where one is named. Changes are kept
    as an experiment, and params.yaml is restored. Returns 0, TRANSIENT where the stage that failed may succeed if it is
    tried again, else 1."""
    from tasks.planning import plan
    from tasks.runtime import dvc
    from tasks.runtime import side_by_side as together

    if changes:
        dvc.committed(root)
    with dvc.overridden(changes, root):
        dvc.stage("plan", root, env, say)
        plans, order = plan.written(root), dvc.order(root)
        within = dvc.upstream(only, root) if only else set(order)
        moved, ran = set(dvc.changed_data(root)), set()

        def bring(name: str, devices: list[int], stopped: Callable[[], bool]) -> bool:
            if name not in moved and not order[name] & ran:
                return False
            own = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, devices))} if devices else {}
            how = together.patient(name, root, env | own, lambda line: say(f"{name}: {line}"), stopped)
            if how != "unchanged":
                ran.add(name)
            return how == "ran"

        budget = together.Budget(jobs, cores or os.cpu_count() or 1, _devices(plans))
        try:
            began = together.walk(
                {n: above - {"plan"} for n, above in order.items() if n != "plan" and n in within},
                bring,
                lambda name: cost(plans, name),
                budget,
            )
        except UserError as e:
            print(f"error: {e}", file=sys.stderr)
            return TRANSIENT if isinstance(e, StageError) and (e.transient or may_pass(e.code)) else 1
        if changes and began:
            dvc.save(env["ESPALIER_EXECUTION"], " ".join(f"{k}={json.dumps(v)}" for k, v in changes.items()), root)
    return 0


def cost(plans: Mapping[str, Any], name: str) -> Cost:
    """What a stage of the written plans takes while it runs."""
    from tasks.planning import places
    from tasks.runtime.side_by_side import Cost

    planned, place = plans.get(name, {}), plans.get("_run", {}).get("place", {}).get(name, {})
    on_device = str(planned.get("params", {}).get("device", "cpu")).startswith("cuda")
    cores = planned.get("threads", 1) * places.processes(place)
    return Cost(cores=cores, devices=places.devices(place) if on_device else 0)


def _devices(plans: dict[str, Any]) -> int:
    """The number of devices of the machine, if a stage needs one; else 0."""
    if not any(str(p.get("params", {}).get("device", "")).startswith("cuda") for p in plans.values()):
        return 0
    import torch

    return torch.cuda.device_count()


def _free(devices: set[str]) -> float:
    """Free bytes of the memory in which models are trained; 0 if unknown."""
    if not devices:
        import psutil

        return float(psutil.virtual_memory().available)
    import torch

    return float(torch.cuda.mem_get_info(min(devices))[0]) if torch.cuda.is_available() else 0.0


def _machine(plans: dict[str, Any]) -> list[str]:
    """What this machine lacks for the run: a device, memory, a model's folder."""
    from tasks.planning import estimate

    wanted = {str(p["params"]["device"]) for p in plans.values() if "device" in p.get("params", {})} - {"cpu"}
    out = []
    if wanted:
        import torch  # takes a second, and only a run on a device needs it

        if not torch.cuda.is_available():
            out.append(
                f"warning: device is {min(wanted)!r}, and torch sees no CUDA device here: take `--set profile=pretrained-cpu`, or see "
                "`espalier doctor`"
            )
    if (known := estimate.size(plans)) is not None and (free := _free(wanted)):
        out += estimate.warnings(plans, known, free)
    model = plans["sft"]["params"].get("model", "") if "sft" in plans else ""
    if model.startswith(("/", ".", "~")) and not Path(model).expanduser().exists():
        out.append(f"warning: sft.model is {model}, which does not exist")
    return out


def _dry(root: Path, plans: dict[str, Any], only: str = "") -> int:
    from tasks.planning import plan
    from tasks.runtime.stage import graph

    now = due(root, plans, only)
    known, first, missing, data, after = now.known, now.first, now.missing, now.data, now.after
    if not first | missing | set(data):
        print("Nothing would run: all is up to date.")
        return 0
    times = seconds(root, known, plans)
    guessed, own = _of_size(root, plans, {n for n in plans if n not in times})
    print("Would run:")
    for n in graph(root):
        if n in first and n in known:
            print(f"  {n}{_about(times.get(n))}")
            for at, old, new in plan.changes(known[n], plans[n]):
                at = at.removeprefix("params.")
                file = at.removeprefix("sources.")
                print(f"    {file} changed" if file != at else f"    {at}: {json.dumps(old)} -> {json.dumps(new)}")
        elif n in first | missing:
            print(f"  {n}  (has not run yet){guessed.get(n) or _about(times.get(n))}")
        elif n in data:
            print(f"  {n}  ({'; '.join(data[n])}){_about(times.get(n))}")
        elif n in after:
            print(f"  {n}  (if what it reads changes){_about(times.get(n))}")
    run = [n for n in graph(root) if n in first | missing | set(data) | set(after)]
    told = [n for n in run if n in times]
    price = plans["report"]["params"].get("price_per_hour", 0.0)
    total = sum(times[n] for n in told)
    money = f", {total / 3600 * price:.4g} at {price:g} an hour" if price else ""
    unknown = [n for n in run if n not in times and n != "plan"]
    if any(n in guessed for n in run):
        print(
            "Times and memory from the size of the model, with every row as long as it may be; rows are shorter as a rule"
            + (
                f"; the time of {' and '.join(own)} from the bytes of your first rows, of which a token takes one or more"
                if own
                else ""
            )
        )
    if told:
        print(
            f"At most about {_clock(total)}{money}, by the last run of these stages in this checkout"
            + (f"; not known: {', '.join(unknown)}" if unknown else "")
        )
    return 0


def _of_size(root: Path, plans: dict[str, Any], wanted: set[str]) -> tuple[dict[str, str], list[str]]:
    """Stage that trains a pretrained model and has not run here -> an upper bound of time and memory, in words; and
    the stages whose time is that of rows of the user's own."""
    from tasks.planning import estimate

    model = estimate.size(plans)
    needed = estimate.memory(plans, model) if model else {}
    if model is None or not wanted & needed.keys():
        return {}, []
    from tasks.rows.guess import tokens

    own = tokens(root, plans)
    time = {n: f"{_clock(s)}, " for n, s in estimate.seconds(plans, model, own).items()}
    bounds = {n: f"  at most about {time.get(n, '')}{needed[n] / 2**30:.1f} GiB" for n in needed if n in wanted}
    return bounds, [n for n in own if n in bounds]


def seconds(root: Path, known: dict[str, Any], plans: dict[str, Any]) -> dict[str, float]:
    """Stage -> predicted seconds: those of its last run here, scaled by the change in its number of steps or rows."""
    from tasks.runtime.stage import measured

    out = {}
    for path in (root / ".espalier" / "measured").glob("*.json"):
        old, new = ((plans.get(path.stem) or {}).get("params", {}) for plans in (known, plans))
        size = next(
            (
                k
                for k in ("steps", "questions", "n_train", "n")
                if isinstance(old.get(k), int) and old[k] and isinstance(new.get(k), int)
            ),
            None,
        )
        if (last := measured(path)) is not None:
            out[path.stem] = last["seconds"] * (new[size] / old[size] if size else 1.0)
    return out


def _about(seconds: float | None) -> str:
    return "" if seconds is None else f"  ~{_clock(seconds)}"


def _clock(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def _table(root: Path) -> None:
    """The main numbers of each model, and where to find the others."""
    path = root / "reports" / "summary.json"
    if path.exists():
        from tasks.runtime.stage import REMEDY
        from tasks.storage import commit

        summary = commit.read_json(path.parent, path.name, remedy=REMEDY)
        models = summary.get("models", {})
        known = list(dict.fromkeys(m for values in models.values() for m in values))
        names = [m for m in known if m.split("@")[0] in SHOWN] or known[:5]  # the others are in the report
        rows = [["model", *names]] + [
            [model, *(_cell(values.get(n)) for n in names)] for model, values in models.items()
        ]
        _aligned(rows)
        for part, what in (
            ("families", "pass@1 by family"),
            ("sets", "pass@1, or the first metric, by test set"),
            ("difference", "difference"),
        ):
            values_of = summary.get(part) or {}
            if part == "sets":  # set -> model -> metrics
                values_of = {m: {s: of[m] for s, of in values_of.items() if m in of} for m in models}
            if part == "difference":
                _aligned(
                    [[what, "mean score"], *([name, _cell(d)] for name, d in values_of.items())] if values_of else []
                )
                continue
            heads = list(dict.fromkeys(name for values in values_of.values() for name in values))
            cells = [[m, *(_cell(_first(values.get(h, {}))) for h in heads)] for m, values in values_of.items()]
            _aligned([[what, *heads], *cells] if heads else [])
    models = [f"artifacts/{s}/model" for s in ("rl", "prefer", "sft")]
    ways = ["reports/index.html (curves, episodes, what was dropped)"] * (root / "reports" / "index.html").exists()
    ways += ["artifacts/rl/samples.html (what the policy makes)"] * (root / "artifacts/rl/samples.html").exists()
    ways.append("espalier ui (MLflow)")
    # a policy of actions has no tokenizer and writes no text
    ways += [f"espalier chat {m}" for m in models if (root / m / "tokenizer_config.json").exists()][:1]
    print("Look next:  " + "   ".join(ways))


def _first(metrics: dict[str, Any]) -> Any:
    """pass@1, or the first metric of a test set without it."""
    return metrics.get("pass@1") or next(iter(metrics.values()), None)


def _aligned(rows: list[list[str]]) -> None:
    """Rows of cells in columns, and an empty line; nothing for no rows."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
    if rows:
        print()


def _cell(value: Any) -> str:
    """A metric with its interval; a dash if it is undefined (tool calls per right answer of a model that is never
    right)."""
    if value is None or value["mean"] is None:
        return "-"
    mean, low, high = (value.get(k) for k in ("mean", "low", "high"))
    return f"{mean:.3f}" if low is None or high is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"
