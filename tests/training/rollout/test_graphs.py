"""Decode steps replayed from a graph, with a stand-in for CUDA's (tests/support/recorded_graphs.py): every line of the
way that a GPU takes, but for the recording itself."""

import numpy as np
import pytest
import tiny
import torch
from recorded_graphs import recorded, recorded_graphs  # noqa: F401 (a fixture)

from synth.types import Sampling
from training.model.native import build
from training.rollout import graphs
from training.rollout.torch_sampler import TorchSampler

V = tiny.Vocabulary(16)
END = V.eos_token_id
PROMPTS = tiny.ids(5, 9, 2, 9, 30, below=16)


@pytest.fixture(autouse=True)
def own_layers(monkeypatch):
    """The model's own layers, as on a GPU: compiled code cannot be recorded."""
    monkeypatch.setattr(build, "_made", lambda: (None, "turned off for a test"))


def said(slots, init_range=0.2, tokens=30):
    source = TorchSampler(tiny.build(vocabulary=V, init_range=init_range), END, slots=slots)
    session = source.open(PROMPTS, range(5))
    first = session.generate(Sampling(max_tokens=tokens))
    alive = [i for i, s in enumerate(first) if s.stop == "end"]
    session.observe(alive, [PROMPTS[i] for i in alive])
    return source, [*first, *(session.generate(Sampling(max_tokens=tokens)) if alive else [])]


@pytest.mark.parametrize("slots", [0, 1, 3])
@pytest.mark.parametrize("init_range", [0.2, 0.02])  # turns of different lengths; turns that run into their limit
def test_replayed_steps_say_what_steps_say(slots, init_range, request):
    tokens = 30 if init_range == 0.2 else graphs.COLUMNS + 20  # the columns of one graph are not enough
    _, want = said(slots, init_range, tokens)
    graphs_rows = request.getfixturevalue("recorded_graphs")
    source, got = said(slots, init_range, tokens)
    assert source.graphs and len(graphs_rows) > 1, "more than one graph: rows went, or columns were full"
    for a, b in zip(got, want, strict=True):
        assert a.ids.tolist() == b.ids.tolist() and a.stop == b.stop
        np.testing.assert_allclose(a.logp, b.logp, atol=1e-5)


def test_what_looks_at_the_host_runs_step_by_step_and_says_so_once(recorded_graphs, capsys, monkeypatch):  # noqa: F811
    forward = TorchSampler.forward

    def looks(self, ids, *more):
        hidden = forward(self, ids, *more)
        return hidden if float(hidden.sum()) != 1.0 else hidden

    _, want = said(0)
    monkeypatch.setattr(TorchSampler, "forward", looks)
    source, got = said(0)
    assert [s.ids.tolist() for s in got] == [s.ids.tolist() for s in want] and not source.graphs
    warned = capsys.readouterr().err.splitlines()
    assert len(warned) == 1 and "runs without CUDA graphs" in warned[0] and "on the host" in warned[0]


def test_the_stand_in_is_a_graph():
    """It computes nothing when it records, reads memory anew at each replay, and leaves the result in its place."""
    x, total = torch.tensor([1.0, 2.0]), torch.zeros(2)
    times = 3.0

    def run():
        total.add_(x)
        return total * times

    out, replay = recorded(run, lambda: None)
    assert total.tolist() == [0.0, 0.0]
    times, place = 100.0, out.data_ptr()
    replay()
    x.copy_(torch.tensor([10.0, 20.0]))
    replay()
    assert total.tolist() == [11.0, 22.0] and out.tolist() == [33.0, 66.0] and out.data_ptr() == place
    with pytest.raises(RuntimeError, match="on the host"):
        recorded(lambda: x * float(x.sum()), lambda: None)
