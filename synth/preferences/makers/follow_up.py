"""Rewrites that users asked for: RLHI's user-guided rewrites, "The Era of Real-World Human Interaction"
(arXiv:2509.25137, 2025).

The problem's prompt is a conversation that ends with a user's message after a reply. Where that message is dissatisfied
(`kind` "feedback": it says what is wrong; "again": it does not), `generate` writes the reply again with it as
instruction. Pair: chosen = the rewriting, rejected = the reply, prompt = the conversation up to the reply with the
persona (`lineage["persona"]`) as system message. Guards: the rewriting differs, is at most `longer` times as long,
keeps the numbers and names of the reply that the follow-up does not mention (`kept` of them at least), and where the
problem has a verifier's answer, it is right.
"""

from __future__ import annotations

import re
from typing import Literal

from synth.preferences.makers._made import ask, made, quarantined, right
from synth.types import Generate, Message, PreferencePair, Problem, Quarantined

REQUEST = (
    "The user was not content with your last reply and wrote:\n\n{follow_up}\n\nWrite that reply again so that it does what they ask. "
    "Reply alone."
)
_FEEDBACK = re.compile(
    r"\b(no(?=,(?! *(?:thank|that(?:'s| is) (?:all|it|fine|ok))))|not what|"
    r"that(?:'s| is) (?:wrong|not|too)|too (?:long|short|vague|formal|complicated)|wrong|incorrect|mistake|"
    r"you (?:forgot|missed|ignored|did not|didn't)|i (?:meant|asked|wanted|said)|instead|shorter|longer|simpler|more detail|"
    r"please (?:fix|correct|use|add|remove))\b",
    re.IGNORECASE,
)
_AGAIN = re.compile(r"\b(try again|again,? please|redo|another (?:one|try)|rewrite)\b", re.IGNORECASE)
_CONTENT = re.compile(r"(?<!^)(?<![.!?]\s)\b[A-Z]\w{2,}\b|\d+(?:\.\d+)?")


def kind(follow_up: str) -> Literal["feedback", "again", "other"]:
    """Whether a user's message complains about the reply before it, asks for another without a reason, or continues."""
    return "feedback" if _FEEDBACK.search(follow_up) else "again" if _AGAIN.search(follow_up) else "other"


def follow_up(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    attempts: int = 3,
    longer: float = 2.0,
    kept: float = 0.5,
) -> PreferencePair | Quarantined:
    """Quarantined: no_follow_up, content (the user does not complain), unchanged, longer, lost_facts or wrong (of the
    last attempt)."""
    messages = problem.prompt
    if len(messages) < 3 or messages[-1].role != "user" or messages[-2].role != "assistant":
        return quarantined(
            problem,
            index,
            "no_follow_up",
            f"the conversation has {len(messages)} messages and ends with {messages[-1].role if messages else 'none'}",
        )
    complaint, reply = messages[-1].content, messages[-2].content
    if kind(complaint) == "other":
        return quarantined(problem, index, "content", complaint)
    request = (*messages[:-1], Message(role="user", content=REQUEST.format(follow_up=complaint)))
    fault = "unchanged"
    for text in ask(generate, request, attempts, seed, "follow_up", problem.id, index):
        fault = _fault(problem, text, reply, complaint, longer, kept)
        if not fault:
            persona = problem.lineage.get("persona", "")
            head = (Message(role="system", content=persona),) if persona else ()
            return made(
                problem,
                "follow_up",
                text,
                reply,
                margin=None,
                prompt=(*head, *messages[:-2]),
                follow_up=kind(complaint),
            )
    return quarantined(problem, index, fault, f"{complaint!r}: {text!r}")


def _fault(problem: Problem, text: str, reply: str, complaint: str, longer: float, kept: float) -> str:
    if " ".join(text.split()) == " ".join(reply.split()):
        return "unchanged"
    if len(text) > longer * max(len(reply), 40) and not re.search(
        r"longer|more detail|expand", complaint, re.IGNORECASE
    ):
        return "longer"
    facts = set(_CONTENT.findall(reply)) - set(_CONTENT.findall(complaint))
    if (
        facts
        and sum(f in text for f in facts) < kept * len(facts)
        and kind(complaint) == "feedback"
        and "wrong" not in complaint.lower()
    ):
        return "lost_facts"
    return "wrong" if problem.answer and right(problem, text) is False else ""
