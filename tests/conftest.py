"""No test is timed: a deadline of Hypothesis fails on a busy machine and says nothing about the code."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
