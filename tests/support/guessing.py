"""An external environment of episodes (the adapter `file`): a number from 1 to 9 is to be guessed."""

import random


class Guess:
    def __init__(self, number):
        self.number, self.left = number, 4

    def start(self):
        return "Guess a number from 1 to 9."

    def step(self, text):
        self.left -= 1
        guess = text.rpartition("<answer>")[2].partition("</answer>")[0].strip()
        if guess == str(self.number):
            return "right", True, 1.0
        if not guess.isdecimal():
            return "that is no number", True, -min(1 + len(guess), 100) / 100
        return "higher" if int(guess) < self.number else "lower", not self.left, 0.0


def problem(seed, split, index):
    number = random.Random(seed).randint(1, 9)
    return {"prompt": "Guess a number from 1 to 9.", "answer": "", "item": number, "root": f"{seed}"}


episode = Guess
