"""Actions on a screen, scored by the screen that they lead to.

The question describes a screen in its first line (synth/scenes/screens.py); the reference is a list of actions that
fulfils the request, "click 1 2; type b". An answer is right if it leads to the same widgets in the same states, and wrong
otherwise; where the cursor ends does not matter. parts: `actions`, the number of actions given.
"""

from __future__ import annotations

from synth.scenes.screens import ACTION, Screen, after, left, read
from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

FORM = "literal"
GIVES = ("actions",)
EXAMPLE = {"prompt": "Screen of 32: red button 1 2; cursor 0 0\nPress the red button.", "answer": "click 1 2"}
MOST = 12  # actions of an answer
__all__ = ["ACTION", "Screen", "after", "clicks", "left", "played", "read"]


def played(question: str, actions: str) -> Screen:
    """The screen after actions on that of a question. Raises ValueError for what is no screen or no action."""
    screen = read(question.partition("\n")[0])
    for action in actions.split(";"):
        screen = after(screen, action)
    return screen


def clicks(problem: Problem, answer: str) -> Score:
    try:
        wanted = played(problem.question, problem.answer)
    except ValueError as e:
        return Unscorable(reason=f"bad_reference: {e}")
    if answer.count(";") >= MOST or len(answer) > 20 * MOST:
        return UNPARSABLE
    try:
        screen = played(problem.question, answer)
    except ValueError:
        return UNPARSABLE
    parts = {"parsed": 1.0, "actions": float(answer.count(";") + 1)}
    return Scored(value=float(screen.widgets == wanted.widgets), parts=parts)
