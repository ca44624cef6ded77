"""`espalier lineage MODEL`: the problems, cleaning decisions, code and data behind a model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.cli._text import columns, dump, short
from tasks.core.paths import project


def add(commands: Any) -> None:
    p = commands.add_parser("lineage", help="which problems, cleaning decisions, code and data made a model")
    p.add_argument(
        "model",
        metavar="MODEL",
        help="champion, a version or run of the registry; rl, prefer, reward or sft of this project; or STATE:STAGE",
    )
    p.add_argument(
        "--json",
        action="store_true",
        help="print everything as JSON: all parameters and the digest of every source file",
    )
    p.add_argument(
        "--rows",
        metavar="FILE",
        type=Path,
        help="write the ids of all rows that it was trained on, one JSON object per line",
    )
    p.set_defaults(run=lineage)


def lineage(args: argparse.Namespace) -> int:
    from tasks.results import lineage as task

    state, stage = chosen(args.model)
    origins = task.lineage(state, stage)
    if args.rows:
        plans = state.plans()
        with args.rows.open("w", encoding="utf-8") as f:
            for name in origins["problems"]:
                f.writelines(
                    json.dumps({"stage": name, "id": i, "of": of}) + "\n"
                    for i, of in task.trained_on(state, name, plans)
                )
    dump(origins) if args.json else print("\n".join(said(origins)))
    return 0


def chosen(model: str) -> tuple[Any, str]:
    """The state and the stage that MODEL names."""
    from tasks.results.lineage import TRAINED
    from tasks.results.snapshots import MODEL, snapshot

    root = project()
    if model in TRAINED:
        return snapshot(root, "workspace"), model
    state, _, stage = model.rpartition(":") if ":" in model else (model, "", "")
    if stage:
        return snapshot(root, state), stage
    if MODEL.fullmatch(model):
        from tasks.results import promote

        stage = promote.registered(root, model).stage
    return snapshot(root, model), stage or "rl"


def said(origins: dict[str, Any]) -> Iterator[str]:
    """The lineage as lines of text, the model first, its sources last."""
    m = origins["model"]
    yield f"The model of the stage {m['stage']} in {m['state']}: {m['is']}"
    commit = (m["commit"] or "none")[:10]
    yield f"  recipe {m['recipe'] or 'none'}, profile {m['profile']}, seed {m['seed']}, commit {commit}, files {m['md5']}"
    yield "\nProblems it was trained on"
    for stage, p in origins["problems"].items():
        kinds = ", ".join(f"{n:,} {k}" for k, n in p["by_family"].items())
        checked = {
            True: "the digest in its card, computed again",
            False: "its card names another digest: the rows are not those",
            None: "its card is gone: whether it was these rows cannot be checked",
        }[p["checked"]]
        yield f"  {stage}: {p['rows']:,} ({short(kinds, 110)}; {checked})"
    yield "\nCleaning decisions"
    if origins["cleaning"] is None:
        yield "  none: no preference pair is among what it was made of"
    else:
        c = origins["cleaning"]
        yield f"  {c.get('produced', 0):,} pairs judged, {c.get('accepted', 0):,} kept"
        yield columns(
            [
                [k, f"{n:,}"]
                for k, n in {
                    **c.get("actions", {}),
                    **{f"quarantined: {r}": n for r, n in c.get("quarantined", {}).items()},
                }.items()
            ]
        )
    yield "\nStages, the last first"
    rows = []
    for s in reversed(origins["stages"]):
        card = s["card"]
        produced = (
            f"{card['accepted']:,} of {card['produced']:,} rows kept" if {"accepted", "produced"} <= card.keys() else ""
        )
        produced = produced or ", ".join(
            f"{k} {card[k]:,}" for k in ("steps", "rollouts", "demonstrations", "pairs", "parameters") if card.get(k)
        )
        place = ", ".join(f"{k} {v}" for k, v in s["place"].items() if v not in (1, ""))
        rows.append([s["stage"], produced, f"{len(s['code'])} source files", f"{(s['md5'] or '')[:12]}", place])
    yield columns(rows)
    yield "\nYour files"
    yield columns([_source(d) for d in origins["sources"]]) or "  none"
    if origins["missing"]:
        yield "\nNot on disk and not in DVC's cache: " + "; ".join(origins["missing"])
    yield "\nLook next:  --json (all parameters and source digests)   --rows FILE (every id)   espalier why ID"


def _source(d: dict[str, Any]) -> list[str]:
    if "rows" not in d:
        return [d["path"], f"{d['files']} files", d["md5"]]
    n = d["rows"]
    return [d["path"], f"{n['kept']} of {n['read']} rows kept", f"by the stage {d['stage']}"]
