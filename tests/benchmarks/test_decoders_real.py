"""What decoders are compared by on a pretrained model, on a tiny one."""

import numpy as np
import pytest
import tiny

from benchmarks.decoders import PEERS, summary
from benchmarks.decoders_real import AT, TASK, Pretrained, measured
from training.model.render import Renderer


@pytest.fixture(scope="module")
def world():
    return Pretrained(tiny.build(), Renderer(tiny.tokenizer()), 1)


def test_the_score_is_the_chance_of_the_answer_alone(world):
    engine = world.engine()
    prompt, answer = world.prompt(world.test[0]), np.array([7, 9, 11])
    (score,) = engine.rewards([np.concatenate([prompt, answer])])
    assert 0 < score < 1 and score == pytest.approx(float(np.exp(engine.logp([(prompt, answer)])[0])), rel=1e-5)
    assert engine.rewards([]) == []


def test_the_last_number_is_the_answer(world):
    of = lambda text: world.right(world.shown, world.renderer.encode(text))  # noqa: E731
    a, b = world.shown.a, world.shown.b
    assert of(f"{a} + {b} = {a + b}") and not of(f"{a} + {b} = {a + b}, or 7") and not of("?")


def test_peers_have_the_tokens_that_were_spent(world):
    rows = measured(world, PEERS)
    assert [r["decoder"] for r in rows] == ["", "greedy", "majority", "best_of_n"]
    most = AT * np.mean(world.one)
    assert all(0 < r["spent"] <= most for r in rows[1:])
    assert rows[1]["peers"]["greedy"] == rows[1]["right"] and rows[1]["spent"] <= np.mean(world.one)
    calls = []
    world.answered, before = lambda decode, fitted, budgets: calls.append(budgets) or (50.0, 1.0), world.answered
    world.peers.clear()
    assert world.peer("majority", 2.1) == world.peer("majority", 2.2) == 50.0
    world.answered = before
    assert calls == [[round(2.25 * n) for n in world.one]]
    again = [{**r, "seed": 2} for r in rows]
    results = summary([*rows, *again], (1, 2), (TASK,), AT, "x")
    assert {r["case"] for r in results["decoders"]} == {"greedy", "majority", "best_of_n"}
    gap = next(r for r in results["decoders"] if r["case"] == "greedy" and r["metric"].startswith("minus greedy"))
    assert gap["value"] == gap["low"] == gap["high"] == 0
