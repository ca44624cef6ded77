"""The picture of agents of several sizes: lines go through the means that are recorded."""

import json

from benchmarks import agent_sizes


def test_a_line_per_agent_and_the_oracles_calls(tmp_path, monkeypatch):
    import matplotlib.axes

    drawn = {}
    bars = matplotlib.axes.Axes.errorbar

    def kept(panel, x, y, bar, **more):
        drawn[len(drawn), more["label"].removesuffix(" parameters")] = (list(y), [list(b) for b in bar])
        return bars(panel, x, y, bar, **more)

    monkeypatch.setattr(matplotlib.axes.Axes, "errorbar", kept)
    rows = json.loads(agent_sizes.PROTOCOL.result.read_text())
    agent_sizes.plot(rows, tmp_path / "it.svg")
    assert (tmp_path / "it.svg").read_text() == agent_sizes.PICTURE.read_text()
    assert [who for _, who in drawn] == [*agent_sizes.SIZES, *agent_sizes.SIZES, "oracle"]
    of = {(r["case"], r["metric"]): r for r in rows}
    for (k, who), (means, (below, _)) in drawn.items():
        line = [of[case, f"{'pass@1' if k < 3 else 'calls'}, {who}"] for case in agent_sizes.GROUPS]
        assert means == [r["value"] for r in line] and below == [r["value"] - r["low"] for r in line]
