"""Demonstrations with search, open and find: the calls of a searcher (`synth.search.searchers`) written as a
conversation, with an occasional detour.

    <open>Norvia</open>                                   ->  the page
    <find>The area of Norvia is | Norvia</find>           ->  the line
    <answer>12500</answer>

A detour is one call that leads nowhere (a page that does not exist, a search that finds other things) before the right
one; it shows how to recover. Tool output is in the role `tool`, which training masks. Every conversation must survive
`replays`: the same calls to the same pages give the same bytes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from synth.search.searchers import Call, Run, SearchIndex, World
from synth.types import Demonstration, Message, Problem, Quarantined
from synth.verify.exact import normalise

_TURN = re.compile(r"<(search|open|find)>(.*)</\1>", re.DOTALL)


def browsing(
    problem: Problem,
    run: Run,
    index: SearchIndex,
    world: World,
    *,
    rng: random.Random,
    detour: float,
    max_calls: int,
    max_context: int,
) -> Demonstration | Quarantined:
    """A run as a demonstration, or quarantined: "not_answered", "too_many_calls" (`max_calls`, the detour included),
    "too_long" (`max_context` characters of results), "replay_differs"."""
    calls, detours = list(run.made), 0
    if run.right and calls and rng.random() < detour:
        place = rng.randrange(len(calls))
        wrong = next((c for c in misses(calls[place], world, rng, index) if _leads_nowhere(c, problem, calls)), None)
        if wrong is not None:
            calls.insert(place, wrong)
            detours = 1
    heard = sum(len(c.heard) for c in calls)
    failed = (
        ("not_answered", f"the searcher says {run.answer!r}")
        if not run.right
        else ("too_many_calls", f"{len(calls)} calls, at most {max_calls} are allowed")
        if len(calls) > max_calls
        else ("too_long", f"{heard} characters, at most {max_context} are allowed")
        if heard > max_context
        else None
    )
    if failed is None:
        messages = [
            m
            for c in calls
            for m in (Message(role="assistant", content=turn(c)), Message(role="tool", content=c.heard))
        ]
        last = Message(role="assistant", content=f"<answer>{problem.answer}</answer>")
        demonstration = Demonstration.make(
            problem=problem.id,
            messages=[*problem.prompt, *messages, last],
            calls=len(calls),
            detours=detours,
            split=problem.split,
        )
        if replays(demonstration, index):
            return demonstration
        failed = ("replay_differs", "a tool gives something else when it is asked again")
    return Quarantined(
        id=problem.id, stage="demonstrations", reason=failed[0], evidence=f"{problem.question} | {failed[1]}"
    )


def turn(call: Call) -> str:
    """The assistant's text for a call."""
    return f"<{call.tool}>{call.said}</{call.tool}>"


def make(text: str, index: SearchIndex) -> Call:
    """The call of a turn. Raises ValueError for a turn without a call."""
    match = _TURN.fullmatch(text)
    if not match:
        raise ValueError(f"the turn {text!r} is no <search>, <open> or <find>")
    tool, argument = match.groups()
    what, gap, more = argument.rpartition(" | ")
    if tool == "search":
        heard = index.search(argument)
    elif tool == "find":
        heard = index.find(what if gap else argument, "" if more == "*" or not gap else more)
    else:
        heard = index.open(what, int(more)) if gap and more.isdigit() else index.open(argument)
    return Call(tool, argument, heard)


def misses(call: Call, world: World, rng: random.Random, index: SearchIndex) -> Iterator[Call]:
    """Calls that a careless searcher might make instead, in random order."""
    labels = sorted({r.label for r in world.kb.relations.values()})
    some = rng.sample(labels, min(4, len(labels)))
    name = call.said.rpartition(" | ")[0] or call.said
    turns = [f"<open>{label}</open>" for label in some] + [f"<search>{label} of {name}</search>" for label in some]
    for text in rng.sample(turns, len(turns)):
        yield make(text, index)


def _leads_nowhere(call: Call, problem: Problem, calls: Sequence[Call]) -> bool:
    known = {(c.tool, c.said) for c in calls}
    names = (problem.answer, *problem.args.get("aliases", ()))
    text = f" {normalise(call.heard)} "
    return (call.tool, call.said) not in known and not any(f" {normalise(n)} " in text for n in names)


def replays(demonstration: Demonstration, index: SearchIndex) -> bool:
    """Whether the tools return every result of a demonstration again, byte for byte."""
    turns = zip(demonstration.messages, demonstration.messages[1:])
    return all(make(text.content, index).heard == heard.content for text, heard in turns if heard.role == "tool")
