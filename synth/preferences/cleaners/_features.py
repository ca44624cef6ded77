"""Cheap features of one answer to a prompt, from text alone: what it is made of, and where its words were seen before.

Nothing here solves or verifies the task: no equation is computed, no order checked, no fact looked up. The features ask
whether an answer is *consistent* with its surroundings: do its words occur in the question, in what was found last, in
its own working?
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from synth.types import Message

_TOKEN = re.compile(r"\w+|[-+*/=]")
BLIND = {"length", "words"}  # what a detector that is blind to length leaves out
_TAGGED = re.compile(r"<(\w+)>([^<]*)</\1>\s*$")


def features(prompt: Sequence[Message], answer: str) -> dict[str, float]:
    """name -> value. Each is given twice, alone and for the kind of prompt (`kind`): what is good in one kind is bad in
    another."""
    tagged = _TAGGED.search(answer)
    tag, payload = (tagged[1], tagged[2]) if tagged else ("", answer)
    final, working = tokens(payload), tokens(answer[: tagged.start()] if tagged else "")
    question = tokens(next((m.content for m in reversed(prompt) if m.role == "user"), ""))
    read = [m.content for m in prompt if m.role == "tool"]
    earlier = tokens(" ".join(m.content for m in prompt if m.role == "assistant"))
    last = read[-1].split("\n") if read else []
    beside = [tokens(line) for line in last if final and final.keys() <= tokens(line).keys()]
    context = tokens(prompt[-2].content) if read else question
    values = {
        "length": len(answer) / 50,
        "words": final.total() / 5,
        f"tag {tag}": 1.0,
        "in question": share(final, question),
        "of question": share(question, final),
        "same multiset as numbers of question": jaccard(_numbers(final), _numbers(question)),
        "in working": share(final, working),
        "same multiset as working": jaccard(final, working),
        "asked before": share(final, earlier),
        "in last result": share(final, tokens(" ".join(last))),
        "in any result": share(final, tokens(" ".join(read))),
        "in first line": share(final, tokens(last[0] if last else "")),
        "line fits last query": max((share(context, line) for line in beside), default=0.0),
        "line fits question": max((share(question, line) for line in beside), default=0.0),
        "new": share(final, question + earlier + tokens(" ".join(read))) if final else 0.0,
    }
    about = kind(prompt)
    return values | {f"{about}: {name}": value for name, value in values.items()}


def kind(prompt: Sequence[Message]) -> str:
    """The kind of a prompt: its number of results read (up to 2), or the first word of a question that has numbers in
    it."""
    question = next((m.content for m in reversed(prompt) if m.role == "user"), "")
    read = sum(m.role == "tool" for m in prompt)
    first = next(iter(re.findall(r"\w+", question.lower())), "")
    return first if not read and len(re.findall(r"\d+", question)) > 1 else f"{min(read, 2)} read"


def tokens(text: str) -> Counter[str]:
    return Counter(_TOKEN.findall(text.lower()))


def _numbers(words: Counter[str]) -> Counter[str]:
    return Counter({w: n for w, n in words.items() if w.isdigit()})


def share(a: Counter[str], b: Counter[str]) -> float:
    """The share of the distinct words of a that occur in b; 0 where a is empty."""
    return sum(w in b for w in a) / len(a) if a else 0.0


def jaccard(a: Counter[str], b: Counter[str]) -> float:
    """Multiset Jaccard similarity; 0 where both are empty."""
    union = (a | b).total()
    return (a & b).total() / union if union else 0.0
