"""Demonstrations whose turns begin with thoughts in small units, from which a policy learns the form before RL rewards
it.

    <think><plan>river Danu</plan></think><search>river Danu</search>            ->  The river Danu flows through Norvia.
    <think><observation>Norvia</observation><plan>capital of Norvia</plan></think><search>capital of Norvia</search>
    ...
    <think><observation>Zelton</observation></think><answer>Zelton</answer>

An observation is the part of the turn that was in the last result and not mentioned before; a plan is the search query.
The results stay byte for byte. Leaves out the traces of a larger model, and units of other kinds.
"""

from __future__ import annotations

import re

from synth.types import Demonstration, Message
from synth.verify.exact import normalise

_TURN = re.compile(r"<(search|answer)>(.*)</\1>", re.DOTALL)


def with_thoughts(demonstration: Demonstration) -> Demonstration:
    """The same calls and the same answer, each after a thought. Raises ValueError for a turn that is neither a search
    nor an answer."""
    messages: list[Message] = []
    heard, known_words = "", set[str]()
    for message in demonstration.messages:
        if message.role != "assistant":
            heard = message.content
            known_words |= set(normalise(heard).split()) if message.role == "user" else set()
            messages.append(message)
            continue
        match = _TURN.fullmatch(message.content)
        if match is None:
            raise ValueError(f"the turn {message.content!r} is neither a search nor an answer: it has no thought")
        kind, text = match[1], match[2]
        passage = set(normalise(heard).split())
        learned = (
            text.split()
            if kind == "answer"
            else [w for w in text.split() if not set(normalise(w).split()) & known_words]
        )
        learned = [w for w in learned if set(normalise(w).split()) & passage]
        noticed = f"<observation>{' '.join(learned)}</observation>" if learned else ""
        planned = f"<plan>{text}</plan>" if kind == "search" or not noticed else ""
        messages.append(Message(role="assistant", content=f"<think>{noticed}{planned}</think>{message.content}"))
        known_words |= set(normalise(text).split())
    return Demonstration.make(
        problem=demonstration.problem,
        messages=messages,
        calls=demonstration.calls,
        detours=demonstration.detours,
        split=demonstration.split,
    )
