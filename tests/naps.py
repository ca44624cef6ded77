"""Processes of tests/test_controller.py that sleep as long as a call is said to take on so many of them."""

import time


class Naps:
    def __init__(self, seconds):
        self.seconds = seconds

    def __getattr__(self, name):
        return lambda given: time.sleep(self.seconds[name][given["share"][1]])


def start(rank, seconds):
    return Naps(seconds)
