"""Episodes in MLflow: a trace that opens turn by turn, and a table of questions and answers.

A trace is one conversation: its root span holds question, answer and outcome; below it every turn of the model is a
span with the messages that it saw, and every call of a tool a span with query and result. Traces of one problem share a
session, so that what two models did with it stands side by side. The functions take a client: tasks/tracking/observe.py
gives it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from synth.types import digest

# tag of a trace: the run of MLflow, the run of the stage, problem and sample: one that is there is not sent again
TAG = "espalier.episode"
STEP = (
    1_000  # nanoseconds between the starts of two spans where no time was measured: they have an order, and no length
)
CLOCK = "wall seconds: of a turn those of the batch that it was sampled in, of a tool those of its call"


def chosen(path: Path, n: int) -> list[dict[str, Any]]:
    """n episodes of the file, evenly over the runs as far as possible, drawn by the hash of their problem, so that all
    runs show the same problems."""
    runs: dict[str, list[dict[str, Any]]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            e = json.loads(line)
            runs.setdefault(e["run"], []).append(e)
    for episodes in runs.values():
        episodes.sort(key=lambda e: digest("trace", e["problem"]))
    each = max(1, n // max(1, len(runs)))
    return [e for episodes in runs.values() for e in episodes[:each]][:n]


def key(run: str, e: Mapping[str, Any]) -> str:
    return digest(run, e["run"], e["problem"], e.get("sample", 0))[:32]


def conversation(e: Mapping[str, Any]) -> str:
    """The name under which `Stage.episodes` is given the seconds of an episode."""
    return f"{e['run']}/{e['problem']}"


def trace(
    client: Any,
    experiment: str,
    run: str,
    e: Mapping[str, Any],
    at: int,
    seconds: Sequence[float] | None = None,
) -> None:
    """Makes one trace. at: its start in nanoseconds. seconds: the duration of each message; without it every span has
    length 0."""
    messages = e["messages"]
    question = next((m["content"] for m in messages if m["role"] == "user"), "")
    tags = {
        TAG: key(run, e),
        "mlflow.traceName": f"{e['run']}: {e['outcome']}",
        "outcome": e["outcome"],
        "model": e["model"],
        "run": e["run"],
    }
    root = client.start_trace(
        f"{e['run']}: {e['outcome']}",
        span_type="AGENT",
        inputs={"question": question} | shown([m for m in messages if m["role"] != "assistant"]),
        tags=tags,
        attributes={
            "problem": e["problem"],
            "mlflow.trace.session": e["problem"],
            "durations": "none were measured" if seconds is None else CLOCK,
        },
        experiment_id=experiment,
        start_time_ns=at,
        run_id=run,
    )
    turn = 0
    speakers = iter(e.get("speakers") or ())  # where several policies play: role and policy of each turn
    at += STEP
    for i, m in enumerate(messages):
        length = 0 if seconds is None else round(1e9 * seconds[i])
        if m["role"] not in ("assistant", "tool"):
            at += length
            continue
        tool = m["role"] == "tool"
        turn += not tool
        name = "search" if tool else ", ".join([f"turn {turn}", *itertools.islice(speakers, 1)])
        before = {"messages": [told(one) for one in seen(e, i)]}
        inputs = {"query": messages[i - 1]["content"]} if tool and i else before
        span = client.start_span(
            name,
            root.trace_id,
            parent_id=root.span_id,
            span_type="TOOL" if tool else "LLM",
            inputs=inputs,
            start_time_ns=at,
        )
        client.end_span(root.trace_id, span.span_id, outputs=told(m)["content"], end_time_ns=at + length)
        at += max(length, STEP)
    last = messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ""
    outputs = {"answer": e.get("said", last), "reference": e["answer"], "outcome": e["outcome"], "score": e["score"]}
    answer = shown([m for m in reversed(messages) if m["role"] == "assistant"])
    client.end_trace(root.trace_id, outputs=outputs | answer, end_time_ns=at)


def shown(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the first of these messages with pictures shows, as a message of a chat that MLflow draws; nothing where none does."""
    first = next((m for m in messages if m.get("pictures")), None)
    return {} if first is None else {"messages": [told(first)]}


def told(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of an episode as one of a chat: with pictures its content has parts, as that of OpenAI's chat completions."""
    if not (given := message.get("pictures")):
        return dict(message)
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in given]
    return {"role": message["role"], "content": [*parts, {"type": "text", "text": message["content"]}]}


def seen(e: Mapping[str, Any], i: int) -> list[dict[str, Any]]:
    """The messages that the model saw before message i: where the history was rewritten (`forks`), those of its row."""
    messages = e["messages"]
    forks: list[tuple[int, int | None]] = list(e.get("forks") or [])
    begin, follows = next(((at, turn) for at, turn in reversed(forks) if at <= i), (0, None))
    own = [dict(m) for m in messages[begin:i]]
    if follows is None:
        return own
    last = [k for k, m in enumerate(messages) if m["role"] == "assistant"][follows]
    return [*seen(e, last), dict(messages[last]), *own]


def table(episodes: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of the evaluation table: a row per episode."""
    columns = ("run", "model", "problem", "family", "hops", "outcome", "score", "calls", "tokens", "said", "answer")
    out: dict[str, list[Any]] = {
        "question": [next((m["content"] for m in e["messages"] if m["role"] == "user"), "") for e in episodes]
    }
    return out | {c: [e.get(c) for e in episodes] for c in columns}


def missing(
    client: Any, experiment: str, run: str, episodes: Sequence[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """The episodes of `run` that have no trace yet: after a crash a pass is sent again, and each trace counts once."""
    known = client.search_traces(
        locations=[experiment], filter_string=f"attributes.run_id = '{run}'", max_results=500, include_spans=False
    )
    sent = {t.info.tags.get(TAG) for t in known}
    yield from (e for e in episodes if key(run, e) not in sent)
