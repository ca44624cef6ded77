"""`espalier submit`: the file that runs the graph, or a stage, on Slurm, Kubernetes, Ray or SkyPilot. docs/scaling.md"""

from __future__ import annotations

import argparse
import re
from typing import Any

from flows.cli._text import count
from flows.overrides import blamed, merged, overrides_of
from tasks.core.errors import UserError, nearest
from tasks.core.paths import inside


def add(commands: Any) -> None:
    p = commands.add_parser("submit", help="run the graph, or a stage, on Slurm, Kubernetes, Ray or SkyPilot")
    p.add_argument("to", metavar="SYSTEM", help="slurm, kubernetes, ray or skypilot")
    p.add_argument(
        "--stage", default="", metavar="STAGE", help="one stage (default: all stages of the graph that have changed)"
    )
    p.add_argument("--recipe", metavar="NAME", help="as of `espalier run`")
    p.add_argument("--set", metavar="STAGE.KNOB=VALUE", action="append", default=[], help="as of `espalier run`")
    p.add_argument(
        "--nodes", type=count, default=1, metavar="N", help="machines; more than one for a stage with learners"
    )
    p.add_argument(
        "--gpus",
        default="0",
        metavar="N",
        help="devices of each machine, with their kind if the system needs it: 8, 8xH200 (Kubernetes: the value of the "
        "label nvidia.com/gpu.product)",
    )
    p.add_argument("--cpus", type=count, default=8, metavar="N", help="cores of each machine (default 8)")
    p.add_argument("--memory", type=count, default=64, metavar="GIB", help="memory of each machine (default 64)")
    p.add_argument("--hours", type=float, default=24.0, metavar="H", help="time limit in hours (default 24)")
    p.add_argument(
        "--where", default="", metavar="NAME", help="partition of Slurm, volume claim of Kubernetes, cloud of SkyPilot"
    )
    p.add_argument(
        "--image", default="", metavar="IMAGE", help="container of Kubernetes, in which Espalier is installed"
    )
    p.add_argument(
        "--setup",
        default="",
        metavar="COMMAND",
        help="what installs Espalier on a machine of SkyPilot (default: pip, from the project, if that is a clone of it)",
    )
    p.add_argument("--address", default="", metavar="URL", help="dashboard of Ray, e.g. http://127.0.0.1:8265")
    p.add_argument("--name", default="", metavar="NAME", help="name of the job (default: espalier-STAGE)")
    p.add_argument("--dry-run", action="store_true", help="print the file and send nothing")
    p.set_defaults(run=submit)


def submit(args: argparse.Namespace) -> int:
    from tasks.planning import plan
    from tasks.runtime.stage import graph
    from tasks.schedule import submit as task

    if args.to not in task.KINDS:
        raise UserError(f"submit: there is no system {args.to!r}: {nearest(args.to, task.KINDS)}")
    root = inside()
    if args.stage and args.stage not in (known := graph(root)):
        raise UserError(f"--stage {args.stage}: {nearest(args.stage, known)}")
    gpus = re.fullmatch(r"(\d+)(?:x([\w.-]+))?", args.gpus)
    if gpus is None:
        raise UserError(f"--gpus {args.gpus}: write how many a machine has, and which: 8, or 8xH200")
    changes = overrides_of(root / "params.yaml", args.recipe, args.set)
    with blamed(changes):
        plans = plan.plans(root, changed=lambda params: merged(params, changes))
    job = task.Job(
        name=args.name or f"espalier-{args.stage or 'run'}",
        root=root.resolve(),
        stage=args.stage,
        settings=[*(["--recipe", args.recipe] if args.recipe else []), *(w for s in args.set for w in ("--set", s))],
        nodes=args.nodes,
        gpus=int(gpus[1]),
        gpu=gpus[2] or "",
        cpus=args.cpus,
        memory=args.memory,
        hours=args.hours,
        where=args.where,
        image=args.image,
        setup=args.setup,
    )
    task.check(job, args.to, plans)
    learners = plans["_run"].get("place", {}).get(args.stage, {}).get("learners", 1)
    if args.dry_run:
        print(task.KINDS[args.to][0](job, learners), end="")
        return 0
    file = task.write(job, args.to, learners)
    print(f"{file}\n{task.send(file, args.to, args.address)}")
    return 0
