"""The clock of a step's parts."""

import time

import pytest
import torch

from training.learner import profile
from training.learner.profile import Clock


class Event:
    """A stand-in for CUDA's: it counts milliseconds of the device, which works on after the host has gone on."""

    device = 0.0

    def __init__(self, enable_timing=False):
        assert enable_timing
        self.at, self.over = None, False

    def record(self):
        Event.device += 250.0
        self.at = Event.device

    def synchronize(self):
        self.over = True

    def elapsed_time(self, other):
        assert self.at is not None and other.at is not None
        return other.at - self.at


def test_on_a_gpu_seconds_are_those_of_events_and_only_the_last_is_waited_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = Clock(torch.device("cuda"))
    for name in ("forward", "backward", "forward"):
        clock.mark(name)
    assert clock.seconds() == {"forward_seconds": 0.5, "backward_seconds": 0.25}
    assert [event.over for _, event in clock.marks] == [False, False, False, True]
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 * 2**20)
    assert profile.peak_mb(torch.device("cuda")) == 3.0


def test_on_a_cpu_they_are_those_of_the_wall(monkeypatch):
    now = iter((1.0, 1.5, 4.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    clock = Clock(torch.device("cpu"))
    clock.mark("forward")
    clock.mark("forward")
    assert clock.seconds() == {"forward_seconds": pytest.approx(3.0)}
    assert profile.peak_mb(torch.device("cpu")) > 10
