"""A chain of words as a theorem of Metamath, proved again by that program (Megill and Wheeler 2019, "Metamath: A Computer
Language for Mathematical Proofs").

A word is what stands between `|-` and `=`, one letter after another. Its grammar is an axiom per letter, an equation
l = r the axiom `|- P l S = P r S` for all words P and S, and equality is symmetric and transitive. So a step of a chain
is one axiom with P and S filled in, turned about where the equation is used from right to left. Where in a word a step
happens is looked up here; whether the proof holds, the program alone decides. A step that is found nowhere, and a gap,
are written "?", with which no proof is complete.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

PROGRAM, SECONDS = "metamath", 10
_HOLDS = "All proofs in the database were verified"
_HEAD = """$c |- word = {letters} $.
$v P S X Y Z $.
p $f word P $.
s $f word S $.
x $f word X $.
y $f word Y $.
z $f word Z $.
none $a word $.
{axioms}
${{ turn.1 $e |- X = Y $. turn $a |- Y = X $. $}}
${{ join.1 $e |- X = Y $. join.2 $e |- Y = Z $. join $a |- X = Z $. $}}
"""


def database(statements: Sequence[str], equations: Sequence[Sequence[str]], first: str, last: str) -> str:
    """The text of a database whose one theorem is `first` = `last`, with the proof that the chain is. The words are of the
    letters a to z, or "?"."""
    letters = sorted(
        {c for word in (first, last, *statements, *(w for pair in equations for w in pair)) for c in word} - {"?"}
    )
    axioms = [f"l.{c} $a word P {c} $." for c in letters]
    axioms += [f"e.{k} $a |- P {' '.join(a)} S = P {' '.join(b)} S $." for k, (a, b) in enumerate(equations)]
    proof = _step(statements[0], statements[1], equations)
    for before, word in zip(statements[1:], statements[2:], strict=False):
        proof = f"{_word(statements[0])} {_word(before)} {_word(word)} {proof} {_step(before, word, equations)} join"
    head = _HEAD.format(letters=" ".join(letters), axioms="\n".join(axioms))
    return f"{head}theorem $p |- {' '.join(first)} = {' '.join(last)} $= {proof} $.\n"


def _word(word: str) -> str:
    return " ".join(["none", *(f"l.{c}" for c in word)]) if "?" not in word else "?"


def _step(before: str, after: str, equations: Sequence[Sequence[str]]) -> str:
    """The proof of |- before = after by one equation; "?" where there is none."""
    for k, (a, b) in enumerate(equations):
        for old, new, turned in ((a, b, False), (b, a, True)):
            for at in range(len(before) - len(old) + 1):
                head, tail = before[:at], before[at + len(old) :]
                if before.startswith(old, at) and after == head + new + tail:
                    used = f"{_word(head)} {_word(tail)} e.{k}"
                    return f"{_word(after)} {_word(before)} {used} turn" if turned else used
    return "?"


def holds(text: str) -> bool:
    """Whether the program verifies every proof of a database. Raises FileNotFoundError where the program is not installed, and
    subprocess.TimeoutExpired after ten seconds."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "proof.mm").write_text(text, encoding="ascii")
        done = subprocess.run(
            [PROGRAM, 'read "proof.mm"', "verify proof *", "exit"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
    return _HOLDS in done.stdout and not any(mark in done.stdout for mark in ("?Error", "?Warning", "incomplete"))
