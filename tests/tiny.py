"""A tokenizer and models of a few thousand parameters, made once per test run. `build` gives a fresh copy of the same weights each time."""

from functools import cache

import numpy as np

from training.model import new_model, train_tokenizer

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


def build(*, seed=0, hidden=32, layers=2, heads=4, kv_heads=2, init_range=0.3):
    return new_model(
        tokenizer(), hidden=hidden, layers=layers, heads=heads, kv_heads=kv_heads, intermediate=48, max_length=256, init_range=init_range, seed=seed
    )


def ids(*lengths, seed=0):
    """One random token sequence per length."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, len(tokenizer()), n) for n in lengths]
