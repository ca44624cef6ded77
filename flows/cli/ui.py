"""`espalier sync` and `espalier ui`: ship waiting events to MLflow, and open its pages."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser("sync", help="ship events that wait in .espalier/spool to MLflow")
    p.set_defaults(run=sync)
    p = commands.add_parser("ui", help="serve the MLflow UI on this machine's loopback address")
    p.add_argument("--port", type=int, default=5000)
    p.set_defaults(run=ui)


def sync(args: argparse.Namespace) -> int:
    from tasks.tracking import observe

    outcome = observe.sync(project())
    print(outcome)
    return 0 if "shipped to" in outcome else 1


def ui(args: argparse.Namespace) -> int:
    from tasks.core import local
    from tasks.tracking import observe
    from tasks.tracking import ui as pages

    root = project()
    where = observe.uri(root)
    if where.startswith("sqlite:"):
        local.free(args.port)
    print(observe.sync(root), file=sys.stderr)
    if not where.startswith("sqlite:"):
        print(f"MLflow is served by {where}: open it there")
        return 0
    print(f"MLflow: {local.link(f'http://127.0.0.1:{args.port}', pages.token(root))} (end with Ctrl-C)", flush=True)
    os.chdir(root)
    pages.serve(root, where, args.port)
    return 0
