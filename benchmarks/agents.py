"""Agent programs as environments: what is recorded of 200 episodes, what 20 % of killed programs change, and what a
request costs beside its sampling. `make bench-agents`

Two programs that know nothing of us: a script of three requests on OpenAI's client, and an agent of LangGraph. The model
is random, so what it says does not matter; what is asked is whether anything is lost.

- *recorded*: share of the sampler's turns that stand in the rollouts with the same ids, log-probs and version, to the bit
- *killed*: every fifth program ends itself by SIGKILL after its first reply; share of the other rollouts that have the
  same tokens and score as where none was killed, and share of the killed that have no score
- *a request*: one program asks REQUESTS times, one after another; its time for each less the sampler's for the same turn
  is what the address, the two processes and the player cost. Starting a program is not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.rows import result_row
from synth.types import Problem, Sampling, Scored, Unscorable
from tasks.serving.sessions import Sessions
from training.env.program import program
from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.rollout.play import Player
from training.rollout.torch_sampler import TorchSampler

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/agents.json"
REQUESTS, TURN = 200, 32
TEXTS = [
    "<|im_start|>user\nsystem assistant tool\n",
    "Question 12 ? Check it. Then give the answer alone.",
    "search query",
]
SCRIPT = """
import json, os, sys
from openai import OpenAI
problem = json.load(sys.stdin)
client, messages = OpenAI(), list(problem["prompt"])
for k in range(3):
    m = client.chat.completions.create(model="policy", messages=messages).choices[0].message
    if os.environ.get("DIES") and int(problem["question"].split()[1]) % 5 == 0:
        os.kill(os.getpid(), 9)
    messages += [{"role": "assistant", "content": m.content}, {"role": "user", "content": f"Check it: {k}."}]
print(m.content)
"""
GRAPH = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
@tool
def search(query: str) -> str:
    "finds passages"
    return "nothing"
problem = json.load(sys.stdin)
made = create_react_agent(ChatOpenAI(model="policy"), [search])
print(made.invoke({"messages": [("user", problem["question"])]})["messages"][-1].content)
"""
ASKS = """
import json, os, sys, time, httpx
problem = json.load(sys.stdin)
url, key = os.environ["OPENAI_BASE_URL"] + "/chat/completions", os.environ["OPENAI_API_KEY"]
client, took = httpx.Client(headers={"authorization": "Bearer " + key}, timeout=60), []
for k in range(int(sys.argv[1])):
    begun = time.perf_counter()
    client.post(url, json={"messages": [{"role": "user", "content": f"Question {k} ?"}]}).raise_for_status()
    took.append(time.perf_counter() - begun)
json.dump(took, open(sys.argv[2], "w"))
print("over")
"""


class Recording(TorchSampler):
    """Keeps every turn as it leaves the sampler, and its seconds."""

    def open(self, prompts, seeds):
        session = super().open(prompts, seeds)
        generate = session.generate

        def kept(sampling):
            begun = time.perf_counter()
            segments = generate(sampling)
            self.seconds.append(time.perf_counter() - begun)
            self.sampled += segments
            return segments

        session.generate = kept
        return session


def player(folder: Path, sessions: Sessions, text: str, *args: str, requests: int = 8, variables=()) -> Player:
    path = folder / f"{abs(hash(text))}.py"
    path.write_text(text)
    tokenizer = train_tokenizer(TEXTS * 20, vocab_size=360)
    model = new_model(
        tokenizer, hidden=128, layers=4, heads=4, kv_heads=2, intermediate=384, max_length=2048, init_range=0.3, seed=0
    )
    renderer = Renderer(tokenizer)
    sampler = Recording(model, renderer.end_id)
    sampler.sampled, sampler.seconds = [], []
    command = " ".join([sys.executable, str(path), *args])
    env = program(command=command, requests=requests, seconds=300, at_once=16, variables=variables)
    return Player(
        sampler=sampler,
        renderer=renderer,
        envs={"program": env},
        tools={"programs": sessions},
        sampling=Sampling(max_tokens=TURN),
        max_tokens=2048,
    )


def problems(n: int) -> list[Problem]:
    rest = {"answer": "a", "verifier": "exact", "args": {"aliases": []}, "family": "f", "split": "train"}
    return [Problem.make(prompt=f"Question {i} ?", env="program", **rest) for i in range(n)]


def recorded(p: Player, groups) -> tuple[float, int]:
    """(share of the sampler's turns that the rollouts hold to the bit, turns)"""
    sampled = [(s.ids.tobytes(), s.logp.tobytes(), s.version) for s in p.sampler.sampled]
    held = [
        (s.ids.tobytes(), s.logp.tobytes(), s.version)
        for g in groups
        for r in g.rollouts
        for s in r.segments
        if s.role == "model"
    ]
    return sum(a == b for a, b in zip(sorted(sampled), sorted(held), strict=False)) / max(len(sampled), len(held)), len(
        sampled
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=200)
    n, load = parser.parse_args().episodes, os.getloadavg()[0]
    versions = {name: version(name) for name in ("torch", "openai", "langgraph")}
    rows = []

    def result(case: str, metric: str, value: float, unit: str, better: str, n: int, low=None, high=None) -> None:
        low, high = value if low is None else low, value if high is None else high
        rows.append(
            result_row(case, metric, value, unit, "make bench-agents", n, better=better, low=low, high=high, **versions)
        )
        print(f"{case}: {metric} {value:.4g} {unit}", flush=True)

    sessions = Sessions()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = None
        for text, called in ((SCRIPT, "a script on OpenAI's client"), (GRAPH, "an agent of LangGraph")):
            p = player(folder, sessions, text)
            groups = p.play(problems(n // 8), 4, "seed")
            whole = whole or groups
            share, turns = recorded(p, groups)
            result(f"{n // 8 * 4} episodes of {called}", "turns recorded to the bit", share, "share", "higher", turns)
            lost = sum(isinstance(r.score, Unscorable) for g in groups for r in g.rollouts)
            result(f"{n // 8 * 4} episodes of {called}", "without a score", lost, "episodes", "lower", n // 8 * 4)
        os.environ["DIES"] = "1"
        p = player(folder, sessions, SCRIPT, variables=["DIES"])
        some = p.play(problems(n // 8), 4, "seed")
        dead = [r for i, g in enumerate(some) if i % 5 == 0 for r in g.rollouts]
        pairs = [
            (a, b)
            for i, (g, h) in enumerate(zip(whole, some, strict=True))
            if i % 5
            for a, b in zip(g.rollouts, h.rollouts, strict=True)
        ]
        same = sum(
            np.array_equal(a.ids, b.ids) and isinstance(b.score, Scored) and a.score == b.score for a, b in pairs
        )
        result("every fifth program is killed", "others unchanged", same / len(pairs), "share", "higher", len(pairs))
        lost = sum(isinstance(r.score, Unscorable) and r.score.reason.startswith("agent_crashed") for r in dead)
        result(
            "every fifth program is killed", "killed without a score", lost / len(dead), "share", "higher", len(dead)
        )
        p = player(folder, sessions, ASKS, str(REQUESTS), str(folder / "took.json"), requests=REQUESTS + 1)
        p.play(problems(1), 1, "seed")
        took = json.loads((folder / "took.json").read_text())[1:]  # the first waits for the player to begin
        sampled = p.sampler.seconds[1:]
        beyond = [1e3 * (a - b) for a, b in zip(took, sampled, strict=True)]
        low, _, high = statistics.quantiles(beyond, n=4)
        result(
            "a request",
            "beside its sampling, median (quartiles)",
            statistics.median(beyond),
            "ms",
            "lower",
            len(beyond),
            low,
            high,
        )
        engine = [1e3 * s for s in sampled]
        low, _, high = statistics.quantiles(engine, n=4)
        result(
            f"a request of {TURN} tokens",
            "sampling, median (quartiles)",
            statistics.median(engine),
            "ms",
            "lower",
            len(engine),
            low,
            high,
        )
    sessions.close()
    for row in rows:  # with the load of the whole time
        row["device"] = f"{os.cpu_count()} CPU cores, load {load:.0f} to {os.getloadavg()[0]:.0f}"
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
