"""Count the ways to pay an amount with given coins.

Certificate: a table over amounts against a recursion over the coins of the text. Difficulty axes: coins, amount.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings, integers, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"coins": 2, "amount": 40},
    {"coins": 3, "amount": 40},
    {"coins": 4, "amount": 60},
    {"coins": 5, "amount": 90},
)
CERTIFICATE = ("a table over amounts", "a recursion over the coins of the text")
WORDINGS = Wordings(
    "In how many ways can {n} cents be paid with coins of {coins} cents?",
    "Coins of {coins} cents exist. Count the ways to pay exactly {n} cents.",
    "A machine takes only coins of {coins} cents. In how many ways can you pay {n} cents exactly?",
    "How many different collections of coins of {coins} cents are worth {n} cents in all?",
    "You have plenty of coins of {coins} cents each. Find the number of ways to make up {n} cents.",
    answer="Each kind of coin may be used any number of times or not at all, and the order does not matter. Answer with one integer.",
    coins=r"[\d, ]+and \d+",
)
SUMS = 60
Spec = tuple[Sequence[int], int]


def coin_ways(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="coin_ways",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, coins: int, amount: int) -> tuple[str, Spec]:
    """All numbers of ways among the sums drawn are equally likely."""

    def once(rng: Random) -> tuple[int | None, Spec]:
        kinds = sorted(rng.sample((1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25), coins))
        n = rng.randint(amount // 2, amount)
        count = ways(kinds, n)
        return (count if count > 1 else None), (kinds, n)

    kinds, n = by_answer(rng, once, SUMS)
    return f"{kinds} {n}", (kinds, n)


def ways(coins: Sequence[int], amount: int) -> int:
    table = [1] + [0] * amount
    for coin in coins:
        for n in range(coin, amount + 1):
            table[n] += table[n - coin]
    return table[amount]


def pose(spec: Spec) -> dict[str, Any]:
    coins, n = spec
    return {
        "prompt": WORDINGS.write(coins=listed([str(c) for c in coins]), n=n),
        "answer": str(ways(coins, n)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    coins = sorted(integers(fields["coins"]), reverse=True)

    def paid(i: int, left: int) -> int:
        if i == len(coins) - 1:
            return int(left % coins[i] == 0)
        return sum(paid(i + 1, left - k * coins[i]) for k in range(left // coins[i] + 1))

    return str(paid(0, int(fields["n"])))
