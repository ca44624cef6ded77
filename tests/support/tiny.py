"""A tokenizer and models of a few thousand parameters, made once per test run. `build` gives a fresh copy of the same
weights each time."""

from functools import cache

import numpy as np

from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.types import Segment

TEXTS = [
    "What is the capital of Norvia ?",
    "<search>capital of Norvia</search>",
    "The capital of Norvia is Zelton.",
    "<answer>Zelton</answer>",
    "<|im_start|>user\nsystem assistant tool\n",
    "Solve 12x + 34 = 58. Sort: 9 8 7.",
] * 20


@cache
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=360)


class Vocabulary:
    """In the place of a tokenizer where no text is needed: `n` tokens, of which token 2 ends a turn."""

    eos_token_id, pad_token_id = 2, 0

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


def build(*, seed=0, vocabulary=None, hidden=32, layers=2, heads=4, kv_heads=2, init_range=0.3):
    return new_model(
        vocabulary or tokenizer(),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        intermediate=48,
        max_length=256,
        init_range=init_range,
        seed=seed,
    )


def ids(*lengths, seed=0, below=None):
    """One random token sequence per length, of ids under `below`."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, below or len(tokenizer()), n) for n in lengths]


class Scripted:
    """In the place of a sampler: every turn is what `say(text so far, seed)` returns; a text that ends in "..." ran
    into the limit."""

    def __init__(self, say):
        self.say, self.renderer, self.version, self.batches = say, Renderer(tokenizer()), 0, []

    def open(self, prompts, seeds):
        return _Session(self, prompts, seeds)


class _Session:
    def __init__(self, sampler, prompts, seeds):
        self.sampler, self.seeds, self.rows = sampler, list(seeds), list(range(len(prompts)))
        self.turns = np.zeros(len(prompts), dtype=np.int64)
        self.seen = [sampler.renderer.decode(p) for p in prompts]

    def observe(self, rows, new):
        self.rows = list(rows)
        for r, x in zip(rows, new, strict=True):
            self.seen[r] += self.sampler.renderer.decode(x)

    def generate(self, sampling):
        self.sampler.batches.append(len(self.rows))
        out = []
        for r in self.rows:
            text = self.sampler.say(self.seen[r], self.seeds[r])
            self.seen[r] += text
            stop = "length" if text.endswith("...") else "end"
            turn = self.sampler.renderer.turn(text)[: None if stop == "end" else -1]
            logp = np.full(len(turn), -0.5, dtype=np.float32)
            out.append(
                Segment(
                    ids=turn,
                    role="model",
                    logp=logp,
                    entropy=logp + 1,
                    stop=stop,
                    version=self.sampler.version,
                    sampling=sampling,
                )
            )
        return out
