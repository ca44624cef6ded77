"""The benchmark of a pretrained model in miniature: every part is trained and measured, and a part that is missing is
named."""

import json

import pytest
import small

from benchmarks import real

QUICK = {
    **{k: v for k, v in small.SIZES.items() if k not in ("evaluate", "report", "rl")},
    "rl": {
        "steps": 2,
        "prompts_per_step": 2,
        "samples_per_prompt": 2,
        "sampling": {"max_turn_tokens": 4},
        "filters": [],
        "advantage": {"piece": "reinforce", "baseline": 0.5},  # an untrained model scores 0 and learns of this
    },
    "evaluate": {"sampling": {"max_turn_tokens": 4}},
}


@pytest.mark.slow
def test_every_part_is_measured_and_a_missing_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "N_QUESTIONS", 3)
    monkeypatch.setattr(real, "PER_FAMILY", 2)
    monkeypatch.setattr(real, "GSM8K", tmp_path / "not there.jsonl")
    begun = real.one(3, tmp_path, "", minutes=-1, sizes=QUICK)
    assert begun["parts"] == [] and begun["missing"] == list(real.PARTS)
    measured = json.loads(json.dumps(real.one(3, tmp_path, "", sizes=QUICK)))
    assert measured["missing"] == ["gsm8k"] and measured["curves"]["rl"] and measured["threads"] == 1
    n = len(measured["cases"]["sft"]["scores"])
    assert n == 5 and all(len(measured["cases"][p]["scores"]) == n for p in measured["parts"])
    summary = {(r["case"], r["metric"]): r for r in real.summarise([measured])}
    for other in ("sft", "sft continued", "rejection sampling", "best of n", "untouched", "prefer"):
        assert summary[f"rl minus {other}, all problems", "pass@1"]["n"] == n
    assert summary["rl, questions", "pass@1"]["n"] == 3 and summary["rl", "CPU seconds"]["value"] > 0
    pair = {(r["case"], r["metric"]): r for r in real.summarise([measured, measured])}
    assert pair["rl, all problems", "pass@1"]["n"] == 2, "of several seeds the interval is over seeds"
