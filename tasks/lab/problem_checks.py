"""Numeric checks of the pieces that make, play and score problems. `tasks.lab.checks` runs them as it runs the checks
of training pieces; each kind declares what its checks may give and expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any


def _problem(values: Mapping[str, Any], **rest: Any) -> Any:
    from synth.types import Problem

    about: dict[str, Any] = {"family": "check", "split": "train"}
    return Problem.make(**about | rest | dict(values))


def _verify(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from synth.types import Scored
    from synth.verify import verdict

    problem = _problem(given["problem"], verifier=piece.piece.rpartition("/")[2])
    scores = [piece(problem, answer, **problem.args) for answer in given["answers"]]
    return {
        "values": [s.value if isinstance(s, Scored) else None for s in scores],
        "verdicts": [verdict(s) for s in scores],
        "parts": [dict(s.parts) if isinstance(s, Scored) else {} for s in scores],
    }


def _families(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from synth.questions.certify import certify
    from synth.types import Problem, Scored
    from synth.verify import extract_answer, verify

    items = [p for i in range(given["n"]) if isinstance(p := piece(0, "train", i), Problem)]
    told = [p.lineage["solution"] for p in items]
    scores = [verify(p, extract_answer(t)) for p, t in zip(items, told, strict=True)]
    return {
        "right": sum(isinstance(s, Scored) and s.value == 1.0 for s in scores),
        "proved": sum(certify(p) is None for p in items),
        "families": sorted({p.family for p in items}),
        "words": {w: [t.split().count(w) for t in told] for w in given.get("words", ())},
    }


def _propose(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    import json

    import numpy as np

    from synth.selfplay.loop import View, cells
    from synth.selfplay.spec import certify
    from synth.types import Problem
    from tasks.planning.pieces import bind
    from tasks.problems.selfplay import registry

    pieces: list[Any] = [bind("family", {"piece": f}) for f in given["families"]]
    families = registry(pieces)
    known = cells(families, 0)
    at = [c for c in known if c.level == given.get("level", 1)]
    failed: list[Any] = [
        (families[f].make(1, "train", i, levels=[at[0].level]), "?")
        for f, n in given.get("failed", {}).items()
        for i in range(n)
    ]
    state, rng, texts = {}, np.random.default_rng(0), []
    for number in range(given.get("rounds", 1)):
        wanted = [at[i % len(at)] for i in range(given["n"])]
        view = View(
            wanted=wanted,
            cells=known,
            families=families,
            failed=failed,
            weak=given.get("weak", ()),
            round=number,
            state=state,
        )
        texts += list(piece(view, rng, given["n"]))
    drawn = Counter(json.loads(t)["family"] for t in texts)
    return {
        "shares": {f: drawn[f] / len(texts) for f in sorted(given["families"])},
        "certified": sum(isinstance(certify(t, families, 0), Problem) for t in texts),
        "state": state,
    }


class _Found:
    """A search tool that returns what a check lists: {query: [[passage, [facts it states]], ...]}."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        from synth.knowledge.kb import Passage

        self.found = {
            q: [Passage(id=i, entity="", title=i, text=i, facts=tuple(facts)) for i, facts in some]
            for q, some in results.items()
        }

    def hits(self, query: str) -> list[Any]:
        return self.found.get(query, [])

    def __call__(self, query: str) -> str:
        return "\n".join(p.text for p in self.hits(query)) or "nothing found"


def _env(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from synth.scenes import draw
    from synth.types import Scored

    env, problem = piece(), _problem(given["problem"])
    tools: dict[str, Any] = {"search": _Found(given["found"])} if "found" in given else {}
    state, _ = env.start(problem, {**tools, "draw": draw})
    observations, rewards, histories, score = [], [], [], None
    for text in given["turns"]:
        messages, over, score = env.step(state, text)
        observations += [m.content for m in messages]
        histories += [[m.content for m in state.pop("history")]] if "history" in state else []
        rewards.append(state.pop("step_reward", 0.0))
        if over:
            break
    parts = dict(score.parts) if isinstance(score, Scored) else {}
    return {
        "value": score.value if isinstance(score, Scored) else None,
        "parts": parts,
        "said": observations,
        "step_rewards": rewards,
        "turn_rewards": state.get("turn_rewards", []),
        "histories": histories,
    }


def _pairs(piece: Any, given: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    from synth.types import Message, Quarantined

    fields = {"answer": "", "verifier": "exact", **given["problem"]}
    if not isinstance(fields["prompt"], str):
        fields["prompt"] = tuple(Message(**m) for m in fields["prompt"])
    lines = iter(given.get("says", ()))
    pair = piece(
        0, _problem(fields), given.get("index", 0), lambda conversations, sampling: [next(lines) for _ in conversations]
    )
    if isinstance(pair, Quarantined):
        return {"reason": pair.reason}
    return {"chosen": pair.chosen, "rejected": pair.rejected, "margin": pair.margin, "columns": dict(pair.columns)}


RUNNERS = {"verifier": _verify, "family": _families, "pair_maker": _pairs, "proposer": _propose, "env": _env}
