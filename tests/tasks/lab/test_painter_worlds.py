"""The world of prompts for a painter: what the rewriter is taught, its pairs, and who ranks."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from synth.scenes.painter import NAMES, honoured
from tasks.lab import painter_worlds as world
from tasks.planning.pieces import bind
from training.decode import Ask
from training.preference.loss.dpo import dpo


def test_prompts_are_held_out_and_rewrites_are_painted():
    assert len(world.HELD) >= 20 and len(world.HELD) + len(world.KNOWN) == 120
    for a, b in world.HELD[:5]:
        assert [k for k in range(40) if world.works(a, b, world.rewrite(k))] == honoured(NAMES[a])
    for ids in ([], [2], [world.RELATION, world.FRAME, 2], [3, 4, 2]):
        assert not world.works(0, 1, np.array(ids, dtype=np.int64))


def test_pairs_are_a_rewrite_that_works_and_one_that_does_not_and_the_ranker_tells_them_apart(monkeypatch):
    monkeypatch.setattr(world, "TAUGHT", 60)
    first = world.rewriter.__wrapped__(1)
    before = world.engine_of(first, "reference")
    rows = world.drawn_pairs(before, 1)
    assert len(rows) >= 40
    for i, row in enumerate(rows):
        a, b = (int(x) - world.NAME for x in row.ids[:2])
        assert world.works(a, b, row.ids[2:]) == (i % 2 == 0)
    model = world.ranker(first, rows, partial(dpo, beta=0.1), 1)
    split = [(r.ids[:2], r.ids[2:]) for r in rows]
    gain = world.engine_of(model).logp(split) - before.logp(split)
    assert np.mean(gain[0::2] > gain[1::2]) > 0.8
    ask = Ask(prompt=world.prompt_of(0, 5), seed=1, max_tokens=3)
    for rank_by in ("implicit_reward", "policy"):
        decode = bind("decode", {"piece": "implicit_reward", "n": 4, "rank_by": rank_by})
        engine = world.engine_of(model, reference=before)
        (done,) = decode(engine, [ask], None)
        (four,) = [
            before.sampler.open([ask.prompt] * 4, [world.seed_for(1, "draw", j) for j in range(4)]).generate(
                before.sampling
            )
        ]
        rows = [(ask.prompt, s.ids) for s in four]
        worth = engine.logp(rows) - (before.logp(rows) if rank_by == "implicit_reward" else 0)
        assert done.segment.ids.tolist() == four[int(worth.argmax())].ids.tolist()
        assert "is the highest of 4" in done.account.events[0]


def test_without_the_first_model_there_is_one_sentence():
    engine = world.engine_of(
        world.new_model(
            world._Vocabulary(),
            hidden=8,
            layers=1,
            heads=1,
            kv_heads=1,
            intermediate=8,
            max_length=16,
            init_range=0.1,
            seed=0,
        )
    )
    ask = Ask(prompt=world.prompt_of(0, 5), seed=1, max_tokens=3)
    with pytest.raises(ValueError, match="there is none: run the stage sft"):
        bind("decode", {"piece": "implicit_reward"})(engine, [ask], None)
    for knobs in ({"n": 0}, {"beta": 0.0}):
        with pytest.raises(ValueError, match="n candidates are 1 or more, beta is above 0"):
            bind("decode", {"piece": "implicit_reward", **knobs})(engine, [ask], None)
