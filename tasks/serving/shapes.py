"""The three shapes in which programs ask: OpenAI's chat completions and responses, and Anthropic's messages.

`read_*` makes one `Asking` of a body, `write_*` the reply of what was sampled, whole; `events_*` the same as a stream.
A parameter that would change what the reply is and that cannot be honoured (`n`, a response format) is refused by name;
those of the sampler are overruled by the stage's and a forced call is left to the model, since what is learned from
must be what the policy would do: they are kept in the record of the request.

https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from synth.types import Message
from tasks.serving.refusal import Refused
from training.env.tool import calls
from training.types import Segment

ROLES = ("system", "developer", "user", "assistant", "tool")
OVERRULED = ("temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "logit_bias")
# Parameters that do not affect the reply's text, or that ask for what every reply here is anyway.
HARMLESS = frozenset(
    "model stream stream_options user metadata store parallel_tool_calls service_tier logprobs reasoning reasoning_effort "
    "thinking include truncation background prompt_cache_key safety_identifier verbosity prompt_cache_retention".split()
)
_TEXT = ("text", "input_text", "output_text")


@dataclass(frozen=True)
class ChatMessage:
    """A message in one form, whichever API it came from: an assistant's calls are (name, arguments as sorted JSON)."""

    role: str
    content: str
    calls: tuple[tuple[str, str], ...] = ()

    @property
    def rendered(self) -> Message:
        """As the chat template takes it, calls in the words of Hermes and Qwen."""
        written = [f'<tool_call>\n{{"name": {json.dumps(n)}, "arguments": {a}}}\n</tool_call>' for n, a in self.calls]
        return Message(role=self.role, content="\n".join(x for x in (self.content, *written) if x))


@dataclass(frozen=True, kw_only=True)
class Asking:
    """A request as it was read; `record` holds the settings of its own that are overruled, `logprobs` whether it asks for
    those of what was sampled."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    most: int | None = None
    stops: tuple[str, ...] = ()
    stream: bool = False
    logprobs: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The sampled reply: text without calls, the calls (id, name, arguments), and why it ended; `tokens` are the texts
    of its ids, if requested."""

    text: str
    calls: tuple[tuple[str, str, str], ...]
    segment: Segment
    prompt_tokens: int
    tokens: tuple[str, ...] = ()

    @property
    def logprobs(self) -> dict[str, Any] | None:
        """In the format of OpenAI's chat completions: every sampled token, including the one that ends the turn."""
        if not self.tokens:
            return None
        assert self.segment.logp is not None
        told = zip(self.tokens, self.segment.logp.tolist(), strict=True)
        entries = [{"token": t, "logprob": x, "bytes": list(t.encode()), "top_logprobs": []} for t, x in told]
        return {"content": entries, "refusal": None}

    @property
    def message(self) -> ChatMessage:
        return ChatMessage("assistant", self.text, tuple((n, a) for _, n, a in self.calls))

    @property
    def cut(self) -> bool:
        return self.segment.stop == "length"


def reply(
    text: str,
    segment: Segment,
    prompt_tokens: int,
    tools: Sequence[Mapping[str, Any]],
    tokens: Sequence[str] = (),
) -> Reply:
    """Parses calls out of the text if tools were offered; a call that cannot be parsed stays text."""
    parsed_calls = calls(text) if tools else []
    if not parsed_calls or any(c.broken for c in parsed_calls):
        return Reply(text=text.strip(), calls=(), segment=segment, prompt_tokens=prompt_tokens, tokens=tuple(tokens))
    tool_calls = tuple((f"call_{secrets.token_hex(8)}", c.name, _sorted(c.arguments)) for c in parsed_calls)
    shown = text[: text.index("<tool_call>")].strip()
    return Reply(text=shown, calls=tool_calls, segment=segment, prompt_tokens=prompt_tokens, tokens=tuple(tokens))


def _sorted(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def _arguments(given: Any, where: str) -> str:
    """The arguments of a call that a program gives back, as sorted JSON."""
    try:
        return _sorted(json.loads(given or "{}") if isinstance(given, str) else given)
    except ValueError as e:
        raise Refused(f"{where}: the arguments of a call are not JSON ({e})", param=where) from e


def _text(content: Any, where: str) -> str:
    """Text of a message: a string, or parts of text. Raises Refused for anything else."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refused(f"{where}: content is a text or a list of parts", param=where)
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in _TEXT or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise Refused(f"{where} has a part of type {kind!r}: this model reads text only", param=where)
    return "".join(part["text"] for part in content)


def _role(role: Any, where: str) -> str:
    if role not in ROLES:
        raise Refused(f"{where} has the role {role!r}: the roles are {', '.join(ROLES)}", param=where)
    return "system" if role == "developer" else role


def _tool(name: Any, description: Any, schema: Any, where: str) -> dict[str, Any]:
    """A tool as chat templates take it. Raises Refused where its parameters are no JSON schema."""
    if not isinstance(name, str) or not name:
        raise Refused(f"{where} has no name: a tool is called by its name", param=where)
    schema = {"type": "object", "properties": {}} if schema is None else schema
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as e:
        raise Refused(f"the parameters of the tool {name!r} are not a JSON schema: {e.message}", param=where) from e
    return {"type": "function", "function": {"name": name, "description": description or "", "parameters": schema}}


def _number(body: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        if (value := body.get(name)) is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise Refused(f"{name} is {value!r}: a number of tokens, at least 1", param=name)
            return value
    return None


def _common(body: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Reads the parameters that all three APIs share. Raises Refused for those that are not supported."""
    for name, value in body.items():
        if name in HARMLESS or name in OVERRULED or name in known or value is None:
            continue
        raise Refused(f"{name} is not offered here and would be ignored: leave it out", param=name)
    if body.get("n") not in (None, 1):
        raise Refused("n: one answer is sampled for each request here, ask several times", param="n")
    for name, plain in (("response_format", {"type": "text"}), ("text", {"format": {"type": "text"}})):
        if body.get(name) not in (None, plain, {}):
            raise Refused(f"{name}: replies are plain text here, leave it out", param=name)
    stops = body.get("stop", body.get("stop_sequences"))
    stops = (stops,) if isinstance(stops, str) else tuple(stops or ())
    if not all(isinstance(s, str) and s for s in stops):
        raise Refused("stop takes texts, none of them empty", param="stop")
    record = {name: body[name] for name in OVERRULED if body.get(name) is not None}
    if (choice := body.get("tool_choice")) not in (None, "auto", "none", {"type": "auto"}, {"type": "none"}):
        record["tool_choice"] = choice
    return {"stops": stops, "stream": bool(body.get("stream")), "record": record}


def _offered(body: Mapping[str, Any], tools: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The tools that may be called. A call that is to be forced is not: what the model writes is its own."""
    choice = body.get("tool_choice")
    return () if (choice.get("type") if isinstance(choice, dict) else choice) == "none" else tuple(tools)


def _whole(messages: list[ChatMessage], where: str) -> tuple[ChatMessage, ...]:
    if not messages:
        raise Refused(f"{where} is empty: a model answers to a message", param=where)
    if messages[-1].role == "assistant":
        raise Refused(f"{where} ends with the assistant's turn: a turn that was begun cannot be continued", param=where)
    return tuple(messages)


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(x, dict) for x in value):
        raise Refused(f"{where} is a list of objects", param=where)
    return value


def read_chat(body: Mapping[str, Any]) -> Asking:
    """OpenAI's `/v1/chat/completions`."""
    messages = []
    for i, m in enumerate(_list(body.get("messages"), "messages")):
        where = f"messages.{i}"
        role = _role(m.get("role"), where)
        tool_calls = [
            (str((c.get("function") or {}).get("name")), _arguments((c.get("function") or {}).get("arguments"), where))
            for c in _list(m.get("tool_calls") or [], f"{where}.tool_calls")
        ]
        text = _text(m.get("content"), where)
        messages.append(ChatMessage(role, text.strip() if role == "assistant" else text, tuple(tool_calls)))
    tools = [
        _tool(f.get("name"), f.get("description"), f.get("parameters"), f"tools.{i}")
        for i, t in enumerate(_list(body.get("tools") or [], "tools"))
        for f in [t.get("function") if isinstance(t.get("function"), dict) else {}]
    ]
    if body.get("top_logprobs"):
        raise Refused(
            "top_logprobs: those of the sampled tokens are told here (logprobs), leave it out", param="top_logprobs"
        )
    if body.get("logprobs") not in (None, True, False):
        raise Refused(f"logprobs is {body['logprobs']!r}: true or false", param="logprobs")
    known = (
        "messages",
        "tools",
        "tool_choice",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "n",
        "response_format",
        "top_logprobs",
    )
    return Asking(
        messages=_whole(messages, "messages"),
        tools=_offered(body, tools),
        most=_number(body, "max_completion_tokens", "max_tokens"),
        logprobs=bool(body.get("logprobs")),
        **_common(body, known),
    )


def read_responses(body: Mapping[str, Any], earlier: Sequence[ChatMessage]) -> Asking:
    """OpenAI's `/v1/responses`. earlier: the conversation of `previous_response_id`."""
    messages = [ChatMessage("system", body["instructions"])] if body.get("instructions") else []
    messages += earlier
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else _list(given, "input")
    for i, m in enumerate(items):
        where, kind = f"input.{i}", m.get("type", "message")
        if kind == "message":
            role = _role(m.get("role"), where)
            text = _text(m.get("content"), where)
            messages.append(ChatMessage(role, text.strip() if role == "assistant" else text))
        elif kind == "function_call":
            call = (str(m.get("name")), _arguments(m.get("arguments"), where))
            if messages and messages[-1].role == "assistant":  # text and calls of one turn come as items of their own
                messages[-1] = ChatMessage("assistant", messages[-1].content, (*messages[-1].calls, call))
            else:
                messages.append(ChatMessage("assistant", "", (call,)))
        elif kind == "function_call_output":
            messages.append(ChatMessage("tool", _text(m.get("output"), where)))
        elif kind != "reasoning":  # there is none here
            raise Refused(
                f"{where} has the type {kind!r}: message, function_call and function_call_output", param=where
            )
    tools = []
    for i, t in enumerate(_list(body.get("tools") or [], "tools")):
        if t.get("type") != "function":
            raise Refused(f"tools.{i} has the type {t.get('type')!r}: functions alone are offered here", param="tools")
        tools.append(_tool(t.get("name"), t.get("description"), t.get("parameters"), f"tools.{i}"))
    known = ("input", "instructions", "previous_response_id", "tools", "tool_choice", "max_output_tokens", "text")
    return Asking(
        messages=_whole(messages, "input"),
        tools=_offered(body, tools),
        most=_number(body, "max_output_tokens"),
        **_common(body, known),
    )


def read_messages(body: Mapping[str, Any]) -> Asking:
    """Anthropic's `/v1/messages`."""
    messages = [ChatMessage("system", _text(body["system"], "system"))] if body.get("system") else []
    for i, m in enumerate(_list(body.get("messages"), "messages")):
        where, content = f"messages.{i}", m.get("content")
        role = _role(m.get("role"), where)
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else _list(content, where)
        tool_uses = [p for p in parts if p.get("type") == "tool_use"]
        results = [p for p in parts if p.get("type") == "tool_result"]
        messages += [ChatMessage("tool", _text(p.get("content"), where)) for p in results]
        text = _text([p for p in parts if p.get("type") not in ("tool_use", "tool_result", "thinking")], where)
        if role == "assistant":
            requested = tuple((str(p.get("name")), _arguments(p.get("input", {}), where)) for p in tool_uses)
            messages.append(ChatMessage(role, text.strip(), requested))
        elif text or not results:
            messages.append(ChatMessage(role, text))
    tools = [
        _tool(t.get("name"), t.get("description"), t.get("input_schema"), f"tools.{i}")
        for i, t in enumerate(_list(body.get("tools") or [], "tools"))
    ]
    known = ("messages", "system", "tools", "tool_choice", "max_tokens", "stop_sequences")
    return Asking(
        messages=_whole(messages, "messages"),
        tools=_offered(body, tools),
        most=_number(body, "max_tokens"),
        **_common(body, known),
    )


def write_chat(answer: Reply, model: str) -> dict[str, Any]:
    content = answer.text or (None if answer.calls else "")  # null means that there are calls: programs rely on it
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in answer.calls
        ]
    finish = "length" if answer.cut else "tool_calls" if answer.calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": answer.logprobs, "finish_reason": finish}
    sampled = len(answer.segment.ids)
    usage = {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": sampled,
        "total_tokens": answer.prompt_tokens + sampled,
    }
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": "chat.completion", "created": int(time.time())}
    return {**head, "model": model, "choices": [choice], "usage": usage}


def events_chat(whole: Mapping[str, Any], usage: bool) -> Iterator[str]:
    (choice,) = whole["choices"]
    message = choice["message"]
    head = {k: whole[k] for k in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    deltas = [{"role": "assistant", "content": message["content"] or ""}]
    deltas += [{"tool_calls": [{"index": i, **c}]} for i, c in enumerate(message.get("tool_calls", []))]
    for delta in deltas:
        yield _line({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]})
    last = {"index": 0, "delta": {}, "logprobs": choice["logprobs"], "finish_reason": choice["finish_reason"]}
    yield _line({**head, "choices": [last]})
    if usage:
        yield _line({**head, "choices": [], "usage": whole["usage"]})
    yield "data: [DONE]\n\n"


def write_responses(name: str, answer: Reply, model: str) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if answer.text or not answer.calls:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        item = {"type": "message", "id": f"msg_{secrets.token_hex(12)}", "status": "completed", "role": "assistant"}
        output.append({**item, "content": [part]})
    output += [
        {"type": "function_call", "id": f"fc_{i}", "call_id": i, "name": n, "arguments": a, "status": "completed"}
        for i, n, a in answer.calls
    ]
    sampled = len(answer.segment.ids)
    usage = {
        "input_tokens": answer.prompt_tokens,
        "output_tokens": sampled,
        "total_tokens": answer.prompt_tokens + sampled,
    }
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": name,
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if answer.cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if answer.cut else None,
        "error": None,
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def events_responses(whole: Mapping[str, Any]) -> Iterator[str]:
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    ]
    for i, item in enumerate(whole["output"]):
        at = {"output_index": i, "item_id": item["id"]}
        events.append(
            {"type": "response.output_item.added", "output_index": i, "item": {**item, "status": "in_progress"}}
        )
        if item["type"] == "message":
            (part,) = item["content"]
            text = {"content_index": 0, **at}
            events += [
                {"type": "response.content_part.added", **text, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **text, "delta": part["text"], "logprobs": []},
                {"type": "response.output_text.done", **text, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **text, "part": part},
            ]
        else:
            events += [
                {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]},
                {
                    "type": "response.function_call_arguments.done",
                    **at,
                    "arguments": item["arguments"],
                    "name": item["name"],
                },
            ]
        events.append({"type": "response.output_item.done", "output_index": i, "item": item})
    events.append({"type": f"response.{whole['status']}", "response": whole})
    for number, event in enumerate(events):
        yield _line({**event, "sequence_number": number}, event["type"])


def write_messages(answer: Reply, model: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
    content += [{"type": "tool_use", "id": i, "name": n, "input": json.loads(a)} for i, n, a in answer.calls]
    why = "max_tokens" if answer.cut else "tool_use" if answer.calls else "end_turn"
    if answer.segment.stop == "stop_string" and not answer.calls:
        why = "stop_sequence"
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": why,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": len(answer.segment.ids)},
    }


def events_messages(whole: Mapping[str, Any]) -> Iterator[str]:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
    for i, block in enumerate(whole["content"]):
        if block["type"] == "text":
            begin, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            begin = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}
        events += [
            {"type": "content_block_start", "index": i, "content_block": begin},
            {"type": "content_block_delta", "index": i, "delta": delta},
            {"type": "content_block_stop", "index": i},
        ]
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events += [{"type": "message_delta", "delta": end, "usage": whole["usage"]}, {"type": "message_stop"}]
    for event in events:
        yield _line(event, event["type"])


def _line(event: Mapping[str, Any], name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
