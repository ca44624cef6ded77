"""Tools that a model calls: JSON in, text out, each call within limits. One file per tool.

A call has the format of Qwen's and Hermes' templates; all calls of a turn run in parallel, and are answered in their
order:

    <tool_call>{"name": "calculator", "arguments": {"expression": "3 * 4"}}</tool_call>

Nothing that a tool or a model does ends a run: `use` returns a text for every call. If a call is not JSON, names an
unknown tool or breaks the tool's schema, or if the tool raises, hangs or has no free place, the text begins with
`error: ` and is one sentence to which a model can react. The result of a tool is cut with a notice, and control
characters are removed; the renderer breaks up chat markup in it (training/model/render.py), and only text that a model
wrote is searched for calls.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match
from referencing import Registry

from synth.types import Problem


class ToolPiece(Protocol):
    """Makes a tool that a model may call.

    Args:
        problem: the problem that is played
        tools: what the stage provides: the search, families, a database

    Returns:
        its name, description, JSON schema of its arguments, and the function that runs
    """

    def __call__(self, problem: Problem, tools: Mapping[str, Any]) -> Tool: ...


MAX_CALL = 20_000  # characters of one call; a longer one is not parsed
ERROR = "error: "
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """parameters  JSON schema of an object: the arguments of `run`
    run         called with them by name, in its own thread; the model sees its result (a str as it is, other values as
                JSON)
    seconds     of wall time for a call; a call that takes longer is abandoned, and keeps its place until it ends
    places      calls that may run at the same time, abandoned ones included: a tool that hangs cannot use up the
                machine's threads
    cost        of a call, in the unit of the budget (money, say)

    Raises ValueError for an invalid schema.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[..., Any]
    seconds: float = 10.0
    places: int = 16
    cost: float = 0.0
    _free: threading.BoundedSemaphore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            Draft202012Validator.check_schema(self.parameters)
        except SchemaError as e:
            raise ValueError(
                f"the parameters of the tool {self.name!r} are no JSON schema ({e.message}): fix its definition"
            ) from e
        object.__setattr__(self, "_free", threading.BoundedSemaphore(self.places))

    @property
    def card(self) -> dict[str, Any]:
        """The description that a model gets, in the form that chat templates know."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": dict(self.parameters)},
        }

    def wrong(self, arguments: Any) -> str:
        """Why these arguments do not fit this tool, or "". A reference in a schema is never fetched."""
        error = best_match(Draft202012Validator(self.parameters, registry=Registry()).iter_errors(arguments))
        if error is None:
            return ""
        where = ".".join(map(str, error.absolute_path))
        return f"{where + ': ' if where else ''}{error.message[:200]}"


@dataclass(frozen=True)
class Call:
    """A call as the model wrote it; `broken` says why it is invalid."""

    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    broken: str = ""


@dataclass(frozen=True)
class Result:
    """failed: the text says what was wrong with the call or the tool. seconds: wall time."""

    text: str
    failed: bool = False
    seconds: float = 0.0


def calls(text: str) -> list[Call]:
    """The calls of a turn in order; a call without its end mark is broken. Linear time."""
    return [_read(match[1], match[0].endswith("</tool_call>")) for match in _CALL.finditer(text)]


def _read(written: str, whole: bool) -> Call:
    if not whole:
        return Call(broken="a call was begun and not ended with </tool_call>")
    if len(written) > MAX_CALL:
        return Call(broken=f"a call has {len(written):,} characters, more than {MAX_CALL:,}")
    try:
        value = json.loads(written)
    except (ValueError, RecursionError) as e:
        return Call(broken=f"a call is no JSON: {e}"[:200])
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Call(broken='a call is {"name": "...", "arguments": {...}}')
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        return Call(name=value["name"], broken=f"the arguments of {value['name'][:50]} are no object")
    return Call(value["name"], arguments)


def instructions(tools: Sequence[Tool]) -> str:
    """The tools and how they are called, as text for a system message."""
    cards = "\n".join(json.dumps(t.card, ensure_ascii=False, sort_keys=True) for t in tools)
    return (
        "You may call these tools:\n"
        + cards
        + '\nA call is <tool_call>{"name": "...", "arguments": {...}}</tool_call>; '
        "several in one turn are made at once. End with <answer>...</answer>."
    )


def use(requested: Sequence[Call], tools: Mapping[str, Tool], *, most: int = 2000) -> list[Result]:
    """A result for every call, in order; calls run in parallel. `most`: characters of a result, the rest is cut."""
    return [wait() for wait in [_begin(call, tools, most) for call in requested]]


def _begin(call: Call, tools: Mapping[str, Tool], most: int) -> Callable[[], Result]:
    """Start a call in its own thread; the returned function waits for its result."""

    def at_once(reason: str) -> Callable[[], Result]:
        return lambda: Result(clean(ERROR + reason, most), failed=True)

    if call.broken:
        return at_once(call.broken)
    tool = tools.get(call.name)
    if tool is None:
        return at_once(f"there is no tool {call.name[:50]!r}: the tools are {', '.join(sorted(tools)) or 'none'}")
    if reason := tool.wrong(call.arguments):
        return at_once(f"{tool.name} does not take these arguments: {reason}")
    began = time.monotonic()
    if not tool._free.acquire(timeout=tool.seconds):
        return at_once(f"{tool.name} does not answer: {tool.places} of its calls are under way")
    results: list[Result] = []

    def work() -> None:
        try:
            value = tool.run(**call.arguments)
            results.append(
                Result(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
            )
        except Exception as e:  # noqa: BLE001 (whatever a tool raises is an observation)
            results.append(Result(f"{ERROR}{tool.name}: {type(e).__name__}: {e}", failed=True))
        finally:
            tool._free.release()

    thread = threading.Thread(target=work, name=f"tool {tool.name}", daemon=True)
    thread.start()

    def wait() -> Result:
        thread.join(max(0.0, began + tool.seconds - time.monotonic()))
        seconds = time.monotonic() - began
        if not results:
            return Result(f"{ERROR}{tool.name} did not answer within {tool.seconds:g} s", failed=True, seconds=seconds)
        return Result(clean(results[0].text, most), results[0].failed, seconds)

    return wait


def clean(text: str, most: int) -> str:
    """At most `most` characters of a text, with a notice of what was cut; characters that control a terminal or break
    an encoder become spaces."""
    shown = _CONTROL.sub(" ", text[:most])
    return shown if len(text) <= most else f"{shown}\n(cut: {len(text):,} characters, the first {most:,} are shown)"
