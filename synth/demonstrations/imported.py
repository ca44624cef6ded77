"""Demonstrations from other people's conversations; layouts are recognised by their columns.

    messages       chat messages (`role`/`content`), or ShareGPT's `conversations` (`from`/`value`)
    prompt         with `completion` (or response, answer, output): two texts, or two lists of messages
    instruction    Alpaca: with `output`, and optionally `input` and `system`

A row that is not a conversation raises ValueError with a reason and evidence: not_an_object, missing_columns,
not_messages, no_question, no_answer, not_alternating, too_long, not_unicode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from synth.preferences.imported import PROMPT, messages_of
from synth.types import Message

TALKS = ("messages", "conversations", "conversation")
ANSWERS = ("completion", "response", "output", "answer", "target", "solution", "chosen")
# ShareGPT's and OpenAI's role names -> ours
ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "function_response": "tool",
    "function": "tool",
    "developer": "system",
}


def conversation(row: Any, *, limit: int = 200_000) -> tuple[Message, ...]:
    """The conversation of a row; messages after the last assistant turn are dropped, because nothing answers them."""
    if not isinstance(row, Mapping):
        raise ValueError(f"not_an_object: {type(row).__name__}: {str(row)[:200]}")
    talk = next((n for n in TALKS if row.get(n) is not None), "")
    try:
        if talk:
            messages = messages_of({"messages": [_renamed(m) for m in row[talk]]}) if row[talk] else ()
        else:
            messages = _two(row)
    except TypeError:
        raise ValueError(f"not_messages: {row.get(talk)!r:.200}") from None
    system = row.get("system")
    if isinstance(system, str) and system.strip() and not any(m.role == "system" for m in messages):
        messages = (Message(role="system", content=system), *messages)
    return _checked(messages, limit)


def _renamed(m: Any) -> Any:
    if not isinstance(m, Mapping):
        return m
    role = m.get("role", m.get("from"))
    return {
        "role": ROLES.get(role, role) if isinstance(role, str) else role,
        "content": m.get("content", m.get("value")),
    }


def _two(row: Mapping[str, Any]) -> tuple[Message, ...]:
    answer = next((row[n] for n in ANSWERS if row.get(n) not in (None, "", [])), None)
    column = next((n for n in PROMPT if row.get(n) not in (None, "", [])), "")
    if not column or answer is None:
        if (
            there := next((n for n in ANSWERS if n in row), "")
            if column
            else next((n for n in (*PROMPT, *TALKS) if n in row), "")
        ):
            raise ValueError(f"{'no_answer' if column else 'no_question'}: the cell {there} is blank")
        raise ValueError(
            f"missing_columns: the row has {', '.join(map(str, row)) or 'none'}: needed are messages, or conversations, "
            "or prompt and completion, or instruction and output"
        )
    reply = [answer] if isinstance(answer, Mapping) else answer
    if isinstance(reply, list):
        reply = messages_of({"messages": [_renamed(m) for m in reply]})
    elif isinstance(reply, str):
        reply = (Message(role="assistant", content=reply),)
    else:
        reply = (Message(role="assistant", content=str(reply)),)
    given = row[column]
    if isinstance(given, list):
        row = {**row, column: [_renamed(m) for m in given]}
    # in an Alpaca row `input` belongs to `instruction`: `messages_of` joins the two
    return (*messages_of({column: row[column], **({"input": row["input"]} if "input" in row else {})}), *reply)


def _checked(messages: Sequence[Message], limit: int) -> tuple[Message, ...]:
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last < 0:
        raise ValueError(f"no_answer: no turn of the assistant among {[m.role for m in messages]}")
    messages = tuple(messages[: last + 1])
    first = next((m.role for m in messages if m.role != "system"), "")
    if first != "user":
        raise ValueError(f"no_question: the conversation begins with a turn of the {first}")
    for a, b in zip(messages, messages[1:], strict=False):
        if a.role == b.role == "assistant":
            raise ValueError(f"not_alternating: the assistant speaks twice: {a.content[:80]!r}, {b.content[:80]!r}")
    for m in messages:
        if len(m.content) > limit:
            raise ValueError(f"too_long: a turn has {len(m.content):,} characters, the limit is {limit:,}")
        try:
            m.content.encode()
        except UnicodeEncodeError as e:
            raise ValueError(f"not_unicode: half a surrogate pair at character {e.start}") from None
    if not any(m.content.strip() for m in messages if m.role == "assistant"):
        raise ValueError("no_answer: every turn of the assistant is blank")
    if not any(m.content.strip() for m in messages if m.role == "user"):
        raise ValueError("no_question: every turn of the user is blank")
    return messages
