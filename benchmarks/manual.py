"""docs/stages: a page per stage, from what the code itself says: its docstring, its knobs, what it reads and writes, its pieces.

`make manual` writes them; tests/test_guide.py fails where a page is not what this would write.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import yaml

from benchmarks.tables import ROOT
from tasks.planning import code
from tasks.planning.pieces import files

PREVIEWED = ("kb", "questions", "problems", "trajectories", "preferences", "clean")


def pages() -> dict[Path, str]:
    """File -> its text, for every stage of dvc.yaml and the list of them."""
    graph = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    folder = ROOT / "docs" / "stages"
    out = {folder / f"{name}.md": plan(entry) if name == "plan" else page(name, entry) for name, entry in graph.items()}
    rows = [f"| [{name}]({name}.md) | {entry.get('desc', '')} |" for name, entry in graph.items()]
    out[folder / "README.md"] = "\n".join(
        ["# Stages", "", "Written by `make manual` from the code.", "", "| stage | what it does |", "|---|---|", *rows, ""]
    )
    return out


def page(name: str, entry: dict) -> str:
    """The page of one stage."""
    path = files("tasks.stages")[name]
    tree = code.source(path).tree
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    said = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    knobs = " ".join((ast.get_docstring(function) or "").split())
    lines = [f"# The stage `{name}`", "", said.partition(": ")[2][:1].upper() + said.partition(": ")[2][1:] if ": " in said else said, ""]
    lines += ["```sh", f"dvc repro {name}", *([f"espalier preview {name}"] if name in PREVIEWED else []), "```", ""]
    lines += ["## Reads and writes", "", *[f"- reads `{d}`" for d in entry.get("deps", [])]]
    lines += [f"- writes `{o if isinstance(o, str) else next(iter(o))}`" for o in entry.get("outs", [])] + [""]
    lines += ["## Knobs", "", f"Under `set: {{{name}: ...}}` in params.yaml, in a recipe or a profile.", ""]
    if knobs:
        lines += [knobs, ""]
    lines += ["| knob | type | default |", "|---|---|---|"]
    for knob in code.knobs(path).values():
        kind = (
            f"{'pieces' if knob.many else 'a piece'} of [`{knob.piece}`](../../{knob.piece.replace('.', '/')})"
            if knob.piece
            else f"`{_type(knob)}`"
        )
        lines.append(f"| `{knob.name}` | {kind} | `{json.dumps(knob.default, ensure_ascii=False)}` |".replace("||", "|"))
    folders = dict.fromkeys(k.piece for k in code.knobs(path).values() if k.piece)
    for folder in folders:
        lines += ["", f"## Pieces of `{folder}`", ""]
        lines += [f"- `{piece}`: {_first(at)}" for piece, at in files(folder).items()]
    return "\n".join(lines) + "\n"


def plan(entry: dict) -> str:
    """The page of the stage `plan`, which has no knobs: the keys of params.yaml are what it reads."""
    said = (ast.get_docstring(code.source(ROOT / "tasks/planning/plan.py").tree) or "").split("\n\n")
    about = " ".join(said[1].split())
    lines = ["# The stage `plan`", "", f"It comes first: {entry['desc']}.", "", "```sh", "dvc repro plan",
             "espalier run --dry-run    # what the plan would run, and why", "```", "", about, "", "## Reads and writes", ""]  # fmt: skip
    lines += ["- reads `params.yaml`", *[f"- reads `{d}`" for d in entry["deps"]], *[f"- writes `{o}`" for o in entry["outs"]]]
    lines += ["", "## Keys of params.yaml", "", "| key | meaning |", "|---|---|"]
    for line in (ROOT / "params.yaml").read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"(\w+):.*?(?: +# (.*))?", line):  # not the values: they are the user's
            lines.append("| `{}` | {} |".format(*((x or "").replace("|", "\\|") for x in found.groups())))
    lines += ["", "Later wins: signatures of the stages < profile < recipe < `set:` < `espalier run --set`. An unknown key, or one that nothing in use "
              "reads, is refused with the nearest that is valid."]  # fmt: skip
    return "\n".join(lines) + "\n"


def _type(knob: code.Knob) -> str:
    return "any" if knob.annotation is None else ast.unparse(knob.annotation).replace("|", "or").strip("'\"")


def _first(path: Path) -> str:
    """The first sentence of a file's docstring."""
    text = " ".join((ast.get_docstring(code.source(path).tree) or "").split("\n\n")[0].split())
    return text.replace("<", "&lt;")


if __name__ == "__main__":
    for file, text in pages().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    print(f"{len(pages())} pages in docs/stages")
