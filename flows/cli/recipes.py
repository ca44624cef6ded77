"""`espalier recipes` and `espalier show RECIPE`: the published methods, and their settings here, knob by knob."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping
from typing import Any

from flows.cli._text import columns, dump


def add(commands: Any) -> None:
    p = commands.add_parser("recipes", help="list the recipes")
    p.add_argument(
        "--coverage", action="store_true", help="which choices the recipes cover, and which pieces no recipe uses"
    )
    p.add_argument("--json", action="store_true", help="print it as JSON")
    p.set_defaults(run=recipes)
    p = commands.add_parser("show", help="explain a recipe: mechanism, citation, and every value that it sets")
    p.add_argument("recipe", metavar="RECIPE")
    p.set_defaults(run=show)


# Folder of flows/recipes (or of your own) -> its heading in the list, in the order of the list.
SHELVES = {
    "core": "Core: what most people want",
    "recipes": "Your own",
    "library": "Library: all other published systems",
}


def recipes(args: argparse.Namespace) -> int:
    from tasks.planning.resolve import read_recipe, yaml_files

    if args.coverage:
        return _coverage(args.json)
    by_name = {name: (path.parent.name, read_recipe(name)) for name, path in yaml_files("recipes").items()}
    if args.json:
        keys = ("id", "title", "citation", "source", "extends")
        dump([{**{k: r.get(k) for k in keys}, "shelf": shelf} for shelf, r in by_name.values()])
        return 0
    width = max(map(len, by_name), default=0)
    for shelf, heading in SHELVES.items():
        shown = {name: r for name, (at, r) in by_name.items() if (at if at in SHELVES else "recipes") == shelf}
        if shown:
            print(f"{heading} ({len(shown)})")
            for name, recipe in shown.items():
                print(f"  {name:<{width}}  {recipe.get('title', '')}")
    return 0


def _coverage(as_json: bool) -> int:
    from tasks.lab.coverage import of_the_library

    coverage = of_the_library()
    if as_json:
        cells = [{"optimiser": o, "granularity": g, "recipes": list(r)} for (o, g), r in coverage.cells.items()]
        dump(
            {
                "recipes": coverage.recipes,
                "axes": coverage.axes,
                "cells": cells,
                "empty": coverage.empty,
                "unused": coverage.unused,
            }
        )
        return 0
    print(f"{coverage.recipes} recipes. How many settle each choice of a system:")
    print(columns([[a, len(r), ", ".join(r[:4]) + (", ..." if len(r) > 4 else "")] for a, r in coverage.axes.items()]))
    print("\nBy optimiser and granularity of the reward:")
    print(
        columns(
            [[o, g, len(r), ", ".join(r[:4]) + (", ..." if len(r) > 4 else "")] for (o, g), r in coverage.cells.items()]
        )
    )
    print(f"\nNothing covers: {'; '.join(coverage.empty) or 'every cell is covered'}")
    print(f"Pieces that no recipe uses ({len(coverage.unused)}): {', '.join(coverage.unused) or 'none'}")
    return 0


SCALE = "the mechanism at about a thousandth of the paper's scale; no result of the paper is reproduced"


def _beyond_text(plans: Mapping[str, Any]) -> bool:
    """Whether a recipe learns from pictures that are drawn here, or in a world of numbers of ours in the place of the paper's."""
    from tasks.planning.code import constant
    from tasks.planning.pieces import locate

    rl, families = plans["rl"]["params"], plans["problems"]["params"]["families"]
    world = (rl["control"] or {}).get("piece", "gymnasium")
    drawn = any("draw" in constant(locate("env", e["piece"]), "TOOLS", "") for e in rl["envs"])
    described = any("synth.scenes" in locate("family", f["piece"]).read_text(encoding="utf-8") for f in families)
    return world != "gymnasium" or drawn or described


def show(args: argparse.Namespace) -> int:
    from tasks.core.paths import project
    from tasks.planning.code import knobs, leaves, lookup
    from tasks.planning.pieces import files
    from tasks.planning.plan import changes, plans
    from tasks.planning.resolve import read_recipe

    recipe = read_recipe(args.recipe)
    cite = recipe.get("citation") or {}
    print(f"{recipe.get('id')}: {recipe.get('title', '')}")
    print(
        f"{cite.get('title', '')}, {cite.get('year', '')}" + (f" (arXiv {cite['arxiv']})" if cite.get("arxiv") else "")
        if cite
        else ""
    )
    for head in ("mechanism", "leaves_out", "source", "extends"):
        if recipe.get(head):
            value = recipe[head]
            body = (
                value
                if isinstance(value, str)
                else "; ".join(map(str, value))
                if isinstance(value, list)
                else str(value)
            )
            print(
                f"\n{head.replace('_', ' ')}:\n{textwrap.fill(' '.join(body.split()), 100, initial_indent='  ', subsequent_indent='  ')}"
            )
    root, known = project(), {stage: leaves(knobs(path)) for stage, path in files("stage").items()}
    bare = plans(root, changed=lambda params: {**params, "recipe": "", "set": {}}, to_run=False)
    full = plans(root, changed=lambda params: {**params, "recipe": args.recipe, "set": {}}, to_run=False)
    if _beyond_text(full):
        print(f"\nscale:\n  {SCALE}")
    print(f"\nwith the profile {full['_run']['profile']} (values that the recipe changes are marked *):")
    for stage, plan in full.items():
        if "recipe" not in plan or stage == "_run":
            continue
        marked = {at for at, _, _ in changes(bare[stage]["params"], plan["params"])}
        print(f"  {stage}:")
        for name, knob in known[stage]:
            star = "*" if any(at == name or at.startswith(f"{name}.") for at in marked) else " "
            value = json.dumps(lookup(plan["params"], name), ensure_ascii=False)
            print(f"  {star} {name}: {value}" + (f"  # {knob.about}" if knob.about else ""))
    return 0
