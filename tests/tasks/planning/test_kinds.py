"""Every kind of pieces is declared once, and every piece of it has the arguments and the result that are declared.

The files are read by `ast`, so that this covers all kinds, those whose pieces need a model among them, in a second.
"""

import ast
import sys

import pytest

from tasks.core.errors import UserError
from tasks.lab.checks import RUNNERS
from tasks.planning import code
from tasks.planning.kinds import declared, piece_kinds, slots, variants
from tasks.planning.pieces import files

FUNCTIONS = {"searcher/shallow": ("closed_book", "one_search", "greedy")}  # three searchers in one file
SHARED = {"source/records"}  # what the readers of records have in common: read_source never opens it by name
MADE = {
    "env",
    "generation",
    "gradient",
    "observation",
    "asynchrony",
    "reward_head",
    "solver",
    "update_rule",
}  # a piece names its own class, which has the declared methods
PIECES = [(kind, name) for kind in piece_kinds() for name in files(kind) if f"{kind}/{name}" not in SHARED]


@pytest.mark.parametrize(("kind", "variant"), [(k, v) for k in piece_kinds() for v in variants(k)])
def test_a_declaration_says_what_everything_is(kind, variant):
    declaration = declared(kind, variant)
    assert declaration.about.endswith(".") and declaration.returns and declaration.result
    assert [m for m in declaration.meaning if not m.startswith("*")] == list(declaration.arguments)
    assert declaration.open == any(m.startswith("*") for m in declaration.meaning)
    assert all([*declaration.meaning.values(), *declaration.gives.values(), *declaration.expects.values()]), (
        "an entry says nothing"
    )
    assert all(declaration.arguments.values()), "an argument has no type"
    assert bool(declaration.gives) == bool(declaration.expects) == (kind in RUNNERS), (
        "a check gives and expects what is declared"
    )


@pytest.mark.parametrize(("kind", "name"), PIECES, ids=lambda x: x)
def test_a_piece_is_what_its_kind_declares(kind, name):
    path = files(kind)[name]
    observes = code.constant(path, "OBSERVES", "groups") if kind == "observation" else "groups"
    declaration, tree = declared(kind, "" if observes == "groups" else observes), code.source(path).tree
    for wanted in FUNCTIONS.get(f"{kind}/{name}", (name,)):
        piece = next((n for n in tree.body if getattr(n, "name", "") == wanted), None)
        assert piece is not None, f"there is no {wanted}"
        if isinstance(piece, ast.ClassDef):
            piece = next((n for n in piece.body if getattr(n, "name", "") == "__init__"), None)
            if piece is None:
                assert not declaration.arguments
                continue
            del piece.args.args[0]
        arguments = {a.arg: ast.unparse(a.annotation) if a.annotation else "" for a in piece.args.args}
        own = dict(list(arguments.items())[len(declaration.arguments) :])
        assert {a: t for a, t in arguments.items() if a not in own} == declaration.arguments
        assert not own or kind == "metric", "only a metric asks for columns by position"
        required = [
            a.arg for a, d in zip(piece.args.kwonlyargs, piece.args.kw_defaults, strict=True) if d is None
        ]  # columns of pairs, arguments of a verifier
        assert not required or declaration.open
        if kind not in MADE and piece.returns is not None:
            assert ast.unparse(piece.returns) == declaration.result


def test_knobs_that_are_pieces_are_of_a_declared_kind():
    kinds = {kind for knobs in slots().values() for kind in knobs.values()}
    assert kinds <= set(piece_kinds())
    assert slots()["rl"]["corrections"] == "correction" and slots()["prefer"]["loss"] == "preference_loss"
    assert "optimizer" not in slots()["rl"] and slots()["rl"]["critic.loss"] == "value_loss"


def test_an_undeclared_kind_is_refused_with_the_place():
    with pytest.raises(UserError, match=r"tasks/stages/__init__\.py declares no Protocol StagePiece"):
        declared("stage")


def test_columns_and_long_entries_are_read():
    loss = declared("preference_loss")
    assert loss.meaning["chosen"].endswith("(its reward, in a reward model)"), "an entry of two lines"
    assert list(loss.meaning)[-1] == "**columns" and loss.open
    assert declared("asynchrony").arguments == {}


def test_nothing_is_imported():
    import subprocess

    script = "import sys; from tasks.planning.kinds import *; [declared(k) for k in piece_kinds()]; slots()"
    script += "; print(sorted({'torch', 'numpy', 'training', 'synth.verify'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout


@pytest.mark.parametrize("stage", files("stage"))
def test_every_knob_of_a_stage_is_described(stage):
    path = files("stage")[stage]
    known = code.knobs(path)
    function = next(n for n in code.source(path).tree.body if getattr(n, "name", "") == stage)
    described = code.entries(ast.get_docstring(function), "Args")
    assert not [k.name for k in known.values() if not k.about], "say in `Args:` of the stage's docstring what it is"
    assert list(described) == list(known), "the descriptions follow the signature, and describe nothing else"
    assert not [name for name, k in code.leaves(known) if not k.about], "say in `Args:` of the class what the field is"
