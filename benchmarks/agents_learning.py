"""Does a policy learn as much through an agent program as in the built-in environment? `make bench-agents-learning`

Two of the tasks of tasks/lab/starts.py, each with the policy that every recipe starts from. From it STEPS steps of GRPO
are learned, in the environment that is built in or through a program on the standard library alone, which knows nothing
of us, with the same knobs and as many rollouts:

    countdown   built in: `single`, one answer.    The program asks once and gives what stands in the answer's tags.
    hops        built in: `search`, two searches.  The program is an agent: it asks, searches at a service of its own by
                HTTP, and asks again with what it found.

At equal seeds the two play the same to the bit, which leaves nothing to compare (*steps with the same rewards*, of the first
seed); so the program has seeds of its own: other problems in another order, other samples. Both policies are then measured
alike: TRIES answers to every problem of the test split, in the built-in environment. The interval of the difference is
Welch's, of two arms that share nothing but the start. The protocol, with seeds and what is expected, was committed before
the first run: benchmarks/runs/agents-learning/protocol.json. `--seed S` runs the program with one seed and records nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import torch
from scipy import stats

from benchmarks.rows import result_row
from benchmarks.selfplay import result
from synth.types import Scored, seed_for
from tasks.lab import behaviour
from tasks.serving.sessions import Sessions

ROOT = Path(__file__).resolve().parents[1]
PROTOCOL = ROOT / "benchmarks" / "runs" / "agents-learning" / "protocol.json"
RESULTS = ROOT / "benchmarks" / "results" / "agents-learning.json"
COMMAND = "make bench-agents-learning"
CLIENT = """
import http.client, json, os, re, sys
from urllib.parse import quote, urlsplit
problem, address = json.load(sys.stdin), urlsplit(os.environ["OPENAI_BASE_URL"])
client = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
def said(messages):
    client.request("POST", address.path + "/chat/completions", json.dumps({"model": "policy", "messages": messages}), headers)
    message = json.load(client.getresponse())["choices"][0]["message"]
    return {**message, "content": message["content"] or ""}
def answer(text):
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    return text[start + 8 : end].strip() if start >= 0 else None
"""
PROGRAMS = {
    "countdown": """
found = answer(said(problem["prompt"])["content"])
if found is not None:
    print(json.dumps({"answer": found}))
""",
    "hops": """
import urllib.request
messages = list(problem["prompt"])
for _ in range(6):
    message = said(messages)
    found = answer(message["content"])
    if found is not None:
        print(json.dumps({"answer": found}))
        break
    query = re.search("<search>(.*?)</search>", message["content"], re.DOTALL)
    if query is None:
        break
    passages = urllib.request.urlopen(sys.argv[1] + quote(query[1], safe=""), timeout=600).read().decode()
    messages += [message, {"role": "tool", "content": passages}]
""",
}


@contextmanager
def served(search: Any) -> Iterator[str]:
    """A service of searches on loopback for the time of the block: GET its address and a query -> text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = search(unquote(self.path[1:])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def run(task: str, arm: str, protocol: dict[str, Any], seed: int, address: str, sessions: Sessions) -> dict[str, Any]:
    """The numbers of one arm with one seed. rewards: of each step. An episode without a score ends the run."""
    plain = here = behaviour.world(task)
    changes = {**protocol["knobs"], "max_unscorable": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        if arm == "program":
            path = Path(folder, "agent.py")
            path.write_text(CLIENT + PROGRAMS[task], encoding="utf-8")
            training = tuple(replace(p, env="program") for p in here.world.problems)
            tools = {**here.tools, "programs": sessions}
            here = replace(here, world=replace(here.world, problems=training), tools=tools)
            command = f"{sys.executable} -S {path} {address}"
            changes["envs"] = [{"piece": "program", "command": command, "seconds": 600.0}]
        composed, player = behaviour.prepared(task, "grpo", changes, protocol["steps"], seed, here=here)
        rows, _ = behaviour._steps(composed)
    groups = player.play(plain.measured, protocol["tries"], seed_for(seed, "agents", task, "measure"))
    scores = [r.score.value for g in groups for r in g.rollouts if isinstance(r.score, Scored)]
    if len(scores) < len(plain.measured) * protocol["tries"]:
        raise RuntimeError(f"{task}, {arm}, seed {seed}: an answer to a problem of the test split has no score")
    return {
        "right": float(np.mean(scores)),
        "auc": float(np.mean([r["reward"] for r in rows] or [np.nan])),
        "samples": float(sum(r["rollouts"] for r in rows)),
        "rewards": [r["reward"] for r in rows],
    }


def difference(case: str, metric: str, a: list[float], b: list[float]) -> dict[str, Any]:
    """A row of the mean of `a` less that of `b`, with Welch's 95 % interval."""
    test = stats.ttest_ind(a, b, equal_var=False)
    low, high = test.confidence_interval(0.95)
    value = float(np.mean(a) - np.mean(b))
    versions = {"torch": torch.__version__}
    return result_row(
        case, metric, value, "", COMMAND, len(a), low=float(low), high=float(high), one_core=True, **versions
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="try the program with one seed and record nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    protocol = json.loads(PROTOCOL.read_text(encoding="utf-8"))
    sessions, rows = Sessions(), []
    for task in protocol["tasks"]:
        search = behaviour.world(task).tools.get("search")
        with served(search) if search else nullcontext("") as address:

            def done(arm: str, seed: int, task: str = task, address: str = address) -> dict[str, Any]:
                began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
                out = run(task, arm, protocol, seed, address, sessions)
                spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
                told = "  ".join(f"{k} {v:.3f}" for k, v in out.items() if k != "rewards")
                print(f"{task}, {arm}, seed {seed}: {told}  ({spent:.0f} CPU s)", flush=True)
                return out

            if args.seed is not None:
                done("program", args.seed)
                continue
            built_in = [done("built in", seed) for seed in protocol["seeds"]]
            own = [done("program", seed) for seed in protocol["seeds_of_the_program"]]
            same = done("program", protocol["seeds"][0])["rewards"]
            start = {**protocol, "steps": 0}
            begun = [run(task, "built in", start, seed, address, sessions)["right"] for seed in protocol["seeds"]]
        rows.append(result(f"{task}: the start", "right", np.array(begun), "", COMMAND))
        for arm, runs in (("built in", built_in), ("a program", own)):
            for metric in ("right", "auc", "samples"):
                unit = "rollouts" if metric == "samples" else ""
                rows.append(result(f"{task}: {arm}", metric, np.array([r[metric] for r in runs]), unit, COMMAND))
        for metric in ("right", "auc"):
            a, b = ([r[metric] for r in runs] for runs in (own, built_in))
            rows.append(difference(f"{task}: the program, less the built-in", metric, a, b))
        shared = float(np.mean(np.equal(same, built_in[0]["rewards"])))
        case, n = f"{task}: at one seed", len(same)
        rows.append(
            result_row(case, "steps with the same rewards", shared, "share", COMMAND, n, low=shared, high=shared)
        )
    sessions.close()
    if args.seed is None:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
