"""The benchmark of learning in miniature: every control is trained, every case measured, all of it summed up."""

import json

import pytest
import small

from benchmarks import learning

QUICK = {
    **{k: v for k, v in small.SIZES.items() if k not in ("evaluate", "report", "rl")},
    "rl": {
        "steps": 3,
        "prompts_per_step": 2,
        "samples_per_prompt": 2,
        "sampling": {"max_turn_tokens": 4},
        "filters": [],
        "advantage": {"piece": "reinforce", "baseline": 0.5},  # an untrained model scores 0 and learns of this
    },
    "evaluate": {"sampling": {"max_turn_tokens": 4}},
}


@pytest.mark.slow
def test_a_seed_has_every_control_and_the_summary_every_claim(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "N_QUESTIONS", 3)
    measured = json.loads(json.dumps(learning.one(3, tmp_path / "seed", QUICK)))
    for name in learning.TRAINED:
        assert {name, f"{name}, greedy", f"{name}, families"} <= set(measured["cases"])
        assert (
            len(measured["cases"][name]["scores"]) == 3
            and len(measured["cases"][name]["scores"][0]) == learning.SAMPLES
        )
    weights = {
        (p / "model.safetensors").read_bytes() for p in (tmp_path / "seed").rglob("model") if "noisy" not in str(p)
    }
    assert len(weights) == 7, (
        "sft, reward, prefer, the same on cleaned pairs, rl and two controls; nothing was right, so the third is the start"
    )
    shown = json.loads((tmp_path / "seed/beside/sft-more-shown/artifacts/demonstrations/card.json").read_text())
    assert (
        shown["accepted"] > json.loads((tmp_path / "seed/artifacts/demonstrations/card.json").read_text())["accepted"]
    )
    known = {"": 1 / 3, ", greedy": 2 / 3, ", families": 1.0}  # laid in: each metric reads its own scores
    for case, share in known.items():
        for name, right in (("rl", share), ("sft", 0.0)):
            scores = measured["cases"][f"{name}{case}"]["scores"]
            scores[:] = [[float(i < right * len(scores))] * len(s) for i, s in enumerate(scores)]
    files = learning.summarise([measured, measured])
    summary = {(r["case"], r["metric"]): r for rows in files.values() for r in rows}
    for title in ("RL", "RL minus SFT"):
        values = [summary[title, metric]["value"] for metric in ("pass@1", "greedy", "families")]
        assert values == pytest.approx([*known.values()])
    for other in (
        "SFT",
        "SFT continued",
        "rejection-sampling SFT",
        "SFT with as many demonstrations as RL saw problems",
    ):
        assert {(f"RL minus {other}", shown) for shown, *_ in learning.SHOWN} <= summary.keys()
    for chosen in learning.CHOSEN:
        assert (f"RL, greedy, minus best of n of SFT by {chosen}", "pass@1") in summary
    assert all(r["n"] == 2 and not r["peers"] for r in summary.values())
    learning.plot(files["learning"], tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert all(f"<!-- {name} -->" in drawn for name in learning.NAMES.values())
