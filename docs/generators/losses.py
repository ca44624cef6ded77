"""The tables of docs/losses.md: every preference loss and every head of a reward model, from what their files say.
`make losses` writes them.

A loss's name, formula and counterpart in TRL are read from its docstring, what it needs from its constants and
signature, and the recipes that use it from flows/recipes. tests/training/preference/test_trl_preferences.py asserts the
counterparts, values and gradients; a test asserts that it covers those named here, and that the committed page is the
generated one.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from tasks.core.paths import CODE as ROOT
from tasks.lab.checks import load
from tasks.planning import code
from tasks.planning.code import name_of
from tasks.planning.resolve import yaml_files

PAGE = ROOT / "docs" / "losses.md"
BLOCK = re.compile(r"(<!-- (losses|heads) -->\n).*?(<!-- /\2 -->)", re.DOTALL)


def doc(path: Path) -> str:
    return ast.get_docstring(code.source(path).tree) or ""


def formula(text: str) -> str:
    """The lines of a docstring's indented block, as one cell; `|` stands for a bar."""
    lines = [line.strip().replace("`", "") for line in text.splitlines() if line.startswith("    ")]
    return "<br>".join(f"`{re.sub(r'  +', '  ', line)}`" for line in lines).replace("|", "\\|")


def peer(text: str) -> str:
    match = re.search(r"^TRL: (.*)\.$", text, re.MULTILINE)
    return match[1] if match else ""


def recipes() -> dict[str, list[str]]:
    """Piece of prefer or head -> the recipes that name it."""
    out: dict[str, list[str]] = {}
    for name in sorted(yaml_files("recipes")):
        for stage, knobs in load(name)["stages"].items():
            for slot in ("loss", "head"):
                spec = knobs.get(slot)
                if stage in ("prefer", "reward") and isinstance(spec, dict):
                    out.setdefault(spec["piece"].replace("-", "_"), []).append(name)
    return {k: list(dict.fromkeys(v)) for k, v in out.items()}


def needs(path: Path) -> str:
    """Passes, columns and units that a loss asks for."""
    function = next(n for n in code.source(path).tree.body if isinstance(n, ast.FunctionDef) and n.name == path.stem)
    pairs = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    columns = [a.arg for a, default in pairs if default is None]
    rows, unit = code.constant(path, "ROWS_PER_UNIT", 1), code.constant(path, "UNIT", "pair")
    requirements = [*sorted(code.constant(path, "NEEDS", set())), *(f"column {c}" for c in columns)]
    if rows != 1 or unit != "pair":
        requirements.append(
            "all pairs of a step" if rows == 0 else f"units: {rows} x {unit}" if rows > 1 else f"units: {unit}"
        )
    return ", ".join(requirements)


def table(kind: str) -> str:
    used, rows = recipes(), []
    known = yaml_files("recipes")
    folder = ROOT / "training/preference" / {"losses": "loss", "heads": "reward_head"}[kind]
    for path in sorted(folder.glob("[!_]*.py")):
        text = doc(path)
        title = text.partition("\n")[0].rstrip(".")
        link = f"[{path.stem}](../{path.relative_to(ROOT).as_posix()})"
        own = ", ".join(f"[{n}](../{name_of(known[n])})" for n in used.get(path.stem, ()))
        rows.append([link, title, formula(text), *([needs(path), peer(text)] if kind == "losses" else []), own])
    head = (
        ["loss", "idea", "formula", "needs", "the same in TRL", "recipes"]
        if kind == "losses"
        else ["head", "idea", "formula", "recipes"]
    )
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)) + "\n"


def generated(text: str) -> str:
    """The page with its tables anew."""
    return BLOCK.sub(lambda match: f"{match[1]}{table(match[2])}{match[3]}", text)


def main() -> int:
    old = PAGE.read_text(encoding="utf-8")
    new = generated(old)
    if new != old:
        PAGE.write_text(new, encoding="utf-8")
        print(f"{PAGE.relative_to(ROOT)}: tables written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
