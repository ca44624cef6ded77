"""What the processes of tests/test_controller.py do: a replica of a tiny model that gives gradients and takes updates, and a toy of RLHF."""

import time

import numpy as np
import tiny
import torch

from training.learner import divided, nll, token_stats
from training.pack import Row, pack


class Replica:
    def __init__(self, rank, lr):
        torch.set_num_threads(1)
        self.rank, self.lr, self.model = rank, lr, tiny.build(seed=1).double()

    def gradient(self, rows):
        """rows: (ids, total of trainable tokens in the whole step) -> loss and gradients of these rows, divided by that total."""
        batch = pack([Row(ids=ids, trainable=np.arange(len(ids)) > 0) for ids, _ in rows], totals={"tokens": rows[0][1]})
        loss, _ = divided(nll(token_stats(self.model, batch), batch), batch)
        names = [n for n, _ in self.model.named_parameters()]
        grads = torch.autograd.grad(loss, list(self.model.parameters()))
        return float(loss.detach()), {n: g.numpy() for n, g in zip(names, grads, strict=True)}

    @torch.no_grad()
    def update(self, gradient):
        for name, p in self.model.named_parameters():
            p -= self.lr * torch.from_numpy(gradient[name])
        return {n: p.numpy().copy() for n, p in self.model.named_parameters()}

    # The calls of a step: each says who did it, and what it was given.

    def generate(self, given):
        k, n = given["share"]
        return [x * 10 for x in given["inputs"][k::n]]

    def reward(self, given):
        time.sleep(0.01)
        return ("reward", self.rank, sorted(x for part in given["generate"] for x in part))

    def reference(self, given):
        return ("reference", self.rank, len(given["generate"]))

    def train_actor(self, given):
        return (given["reward"], given["reference"], self.rank)

    def broken(self, given):
        raise ValueError("this worker is broken")


def start(rank, lr=0.1):
    return Replica(rank, lr)
