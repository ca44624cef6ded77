"""What the training stages share."""

from types import SimpleNamespace

import pytest

from tasks import training


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_every_step_is_taken_once_however_they_are_grouped_into_tasks(monkeypatch, seconds):
    steps = [(SimpleNamespace(name="r"), i, {"loss": float(i)}) for i in range(5)]
    curve = SimpleNamespace(rows=[], add=lambda metrics, **tags: curve.rows.append(metrics["loss"]))
    tasks = []
    monkeypatch.setattr(training, "WATCHED", seconds)
    monkeypatch.setattr(training, "run", lambda rounds, roles: iter(steps))
    monkeypatch.setattr(training, "learn", lambda *a, learn=training.learn: tasks.append(1) or learn(*a))
    training.drive([], {}, curve)
    assert curve.rows == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert len(tasks) == (6 if seconds == 0.0 else 1)
