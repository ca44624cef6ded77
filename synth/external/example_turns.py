"""An environment of several turns as the adapter `file` reads it: a number from 1 to 31 is guessed in five turns."""

import random


class episode:
    def __init__(self, item):
        self.number, self.left = item, 5

    def start(self):
        return "Guess a number from 1 to 31, in <answer></answer>. You have five tries."

    def step(self, text):
        """(what is said, whether it is over, reward)"""
        self.left -= 1
        answer = text.rpartition("<answer>")[2].partition("</answer>")[0].strip()
        if answer == str(self.number):
            return "right", True, 1.0
        if not answer.isdecimal() or not self.left:
            return "that is no number" if not answer.isdecimal() else "no try is left", True, 0.0
        return "higher" if int(answer) < self.number else "lower", False, 0.0


def problem(seed, split, index):
    return {"prompt": "Guess a number.", "answer": "", "item": random.Random(seed).randint(1, 31), "root": f"{seed}"}
