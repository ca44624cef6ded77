"""What the training stages share."""

from types import SimpleNamespace

import pytest

from tasks.runtime import train_loop
from training.learner.loop import Round


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_every_step_is_taken_once_however_they_are_grouped_into_tasks(tmp_path, monkeypatch, seconds):
    played = Round(name="r", role="policy", source=lambda step: ([], {}), objective=None, steps=5)
    steps = [(played, i, {"loss": float(i)}) for i in range(5)]
    stage = SimpleNamespace(name="sft", work=tmp_path)
    curve = SimpleNamespace(rows=[], stage=stage, add=lambda metrics, **tags: curve.rows.append(metrics["loss"]))
    tasks = []
    monkeypatch.setattr(train_loop, "WATCHED", seconds)
    monkeypatch.setattr(train_loop, "run", lambda rounds, roles, done: iter(steps))
    monkeypatch.setattr(
        train_loop, "learner_step", lambda *a, real=train_loop.learner_step: tasks.append(1) or real(*a)
    )
    train_loop.drive([played], {}, curve, every=2)
    assert curve.rows == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(tasks) == (6 if seconds == 0.0 else 1)
