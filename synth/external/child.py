"""The process of an external environment: one JSON line in, one JSON line out. Run as a program, by any Python from 3.10,
without the rest of this project.

The environment's output goes to standard error. `watch` in a request returns what scoring executed and opened (the
interpreter's audit events, PEP 578).
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import math
import os
import sys
from importlib import metadata

EVENTS = {
    "socket.connect": "connects",
    "socket.getaddrinfo": "resolves a name",
    "subprocess.Popen": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "os.remove": "removes a file",
}


class Watch:
    """Records what happens in this process while `on`. mark: a name whose occurrences in executed code are counted."""

    def __init__(self) -> None:
        self.on, self.mark = False, ""
        self.executed, self.opened = False, []
        sys.addaudithook(self.hear)

    def hear(self, event, args) -> None:
        if not self.on:
            return
        if event == "exec":
            code = args[0]
            self.executed |= any(self.mark in str(x) for x in (*code.co_names, *code.co_consts, *code.co_varnames))
        elif event in EVENTS:
            where = args[1] if event == "socket.connect" else args[0] if args else ""
            self.opened.append([EVENTS[event], os.path.basename(str(where))])


def main() -> None:
    given = json.loads(sys.stdin.buffer.readline())
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)
    sys.path[:] = [p for p in sys.path if p != os.path.dirname(os.path.abspath(__file__))] + [os.getcwd()]
    if limit := given["memory_mb"]:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit << 20, limit << 20))

    def tell(reply) -> None:
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()

    try:
        environment = opened(given["adapter"], given["options"])
    except BaseException as e:  # noqa: BLE001 (said where it was asked for)
        tell({"refused": sentence(e, given["adapter"])})
        return
    about = {"actions": list(getattr(environment, "actions", ())), "remote": getattr(environment, "remote", "")}
    tell(
        {"turns": bool(environment.turns), "name": str(environment.name), "version": str(environment.version), **about}
    )
    watch, episodes = None, {}
    for line in sys.stdin.buffer:
        request = json.loads(line)
        for number in request.get("closed", ()):
            over = episodes.pop(number, None)
            if hasattr(over, "close"):
                over.close()
        try:
            if request.get("watch"):
                watch = watch or Watch()
                watch.mark, watch.executed, watch.opened, watch.on = request["watch"], False, [], True
            reply = answered(environment, episodes, request)
        except MemoryError:
            sys.exit("it needs more memory than memory_mb")
        except Exception as e:  # noqa: BLE001 (an error of the environment is a value for the one who asks)
            reply = {"failed": f"{type(e).__name__}: {e}"[:500]}
        if watch is not None and watch.on:
            watch.on = False
            reply |= {"executed": watch.executed, "opened": watch.opened[:100]}
        tell(reply)


def opened(path, options):
    """The adapter's environment. Raises whatever it raises."""
    name = os.path.basename(path)[:-3]
    spec = importlib.util.spec_from_file_location(f"espalier_{name}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make = getattr(module, name)
    takes = inspect.signature(make).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in takes.values()) and (unknown := sorted(set(options) - set(takes))):
        raise ValueError(f"it has no option {unknown[0]!r}; its options are {', '.join(takes)}")
    if lacking := [
        k for k, p in takes.items() if p.default is p.empty and p.kind is p.KEYWORD_ONLY and k not in options
    ]:
        raise ValueError(f"it needs the option {lacking[0]}")
    return make(**options)


def sentence(e, path) -> str:
    """A sentence that says why an environment does not start, and how to fix it."""
    name = os.path.basename(path)[:-3]
    package = name.replace("_", "-")
    if isinstance(e, ModuleNotFoundError):
        missing = (e.name or "").partition(".")[0]
        wanted = package if missing == name else missing
        return f"the package {wanted} is missing for {sys.executable}: install it there, or name another interpreter (python)"
    if isinstance(e, (ImportError, AttributeError)):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            version = "(no version)"
        return (
            f"{package} {version} is none that this adapter knows ({e}): install another version beside it and name its "
            "interpreter (python)"
        )
    line = " ".join(str(e).split())
    return (line if isinstance(e, ValueError) else f"{type(e).__name__}: {line}")[:500]


def answered(environment, episodes, request) -> dict:
    op = request["op"]
    if op == "problem":
        drawn = getattr(environment, "problem", None)
        row = (
            drawn(request["seed"], request["split"], request["index"])
            if drawn
            else seeded(environment, request["seed"])
        )
        if row is None:
            return {"none": True}
        prompt = row["prompt"]
        return {**row, "prompt": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt}
    if op == "score":
        value = environment.score(request["item"], request["answer"])
        value, parts = value if isinstance(value, tuple) else (value, {})
        return {"value": number(value), "parts": {k: number(v) for k, v in parts.items()}}
    if op == "start":
        episodes[request["episode"]] = environment.episode(request["item"])
        return {"messages": spoken(episodes[request["episode"]].start())}
    messages, over, reward = episodes[request["episode"]].step(request["text"])
    return {"messages": spoken(messages), "over": bool(over), "reward": number(reward)}


def seeded(environment, seed) -> dict:
    """The problem of an environment that has only an episode for each seed: the first message of that episode."""
    item = {"seed": seed % 2**31}
    episode = environment.episode(item)
    shown = episode.start()
    episode.close()
    return {"prompt": shown, "answer": "", "item": item, "root": str(item["seed"])}


def number(value) -> float:
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"the score {value} is no finite number")
    return value


def spoken(messages) -> list:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


if __name__ == "__main__":
    main()
