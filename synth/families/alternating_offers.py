"""What is offered first where two share coins by offers in turn, or what does who offers in a round keep?

Bargaining with one subgame-perfect equilibrium (Rubinstein 1982; Stahl 1972), of which one round is the ultimatum game; env "offers" has it played
with a partner. Recon, Zhou et al. 2025 (arXiv 2506.00577) measures games that its problems do not play. Certificate: backward induction on the
values, against all offers of all rounds tried one by one on what the text says. Difficulty axes: coins, rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, read_kind
from synth.types import Problem, Quarantined, Split
from synth.verify._offers import Pie, told

LADDER = (
    {"coins": 30, "rounds": 3},
    {"coins": 60, "rounds": 4},
    {"coins": 99, "rounds": 6},
    {"coins": 400, "rounds": 9},
)
CERTIFICATE = ("backward induction", "all offers of all rounds, one by one")
ASKS = ("offer", "keeps")
BOTH = "Both want the most and accept where refusing gains nothing."
_FIELDS = {"rounds": "[0-9]+ rounds?", "first": "You offer|The other offers"}
WORDINGS = {
    "offer": Wordings(
        f"Two share {{coins}} coins by offers in turn, in {{rounds}} at most; each refusal costs {{loss}}. {BOTH} {{first}} first. What is offered first?",
        f"What is offered first where two share {{coins}} coins by offers in turn, in {{rounds}} at most? {{first}} first, and each refusal costs {{loss}}. {BOTH}",
        f"{{first}} first: two share {{coins}} coins by offers in turn, in {{rounds}} at most, and each refusal costs {{loss}}. {BOTH} How many coins are offered first?",
        f"By offers in turn two share {{coins}} coins, in {{rounds}} at most. Each refusal costs {{loss}}. {{first}} first. {BOTH} How much does the first offer leave to who hears it?",
        f"{BOTH} Two share {{coins}} coins by offers in turn, in {{rounds}} at most; each refusal costs {{loss}}. {{first}} first. Of how many coins is the first offer?",
        answer="Answer with one number.",
        **_FIELDS,
    ),
    "keeps": Wordings(
        f"Two share {{coins}} coins by offers in turn, in {{rounds}} at most; each refusal costs {{loss}}. {BOTH} {{first}} first. How much does who offers in round {{asked}} keep?",
        f"How much does who offers in round {{asked}} keep where two share {{coins}} coins by offers in turn, in {{rounds}} at most? {{first}} first, and each refusal costs {{loss}}. {BOTH}",
        f"{{first}} first: two share {{coins}} coins by offers in turn, in {{rounds}} at most, and each refusal costs {{loss}}. {BOTH} How many coins has who offers in round {{asked}} if that is accepted?",
        f"By offers in turn two share {{coins}} coins, in {{rounds}} at most. Each refusal costs {{loss}}. {{first}} first. {BOTH} What is left to who offers in round {{asked}}?",
        f"{BOTH} Two share {{coins}} coins by offers in turn, in {{rounds}} at most; each refusal costs {{loss}}. {{first}} first. What does who offers in round {{asked}} get?",
        answer="Answer with one number.",
        **_FIELDS,
    ),
}
Spec = tuple[Pie, int]  # the round that is asked about, 0 for the first offer


def alternating_offers(
    seed: int,
    split: Split,
    index: int,
    *,
    levels: Sequence[int] = (1,),
    asks: Sequence[str] = ("offer", "keeps"),
    env: str = "single",
) -> Problem | Quarantined:
    """Problem `index` of a split: a number of coins. `levels` are the rungs of the ladder to draw from, `asks` what is asked: offer (the first one),
    keeps (who offers in some round). Env "offers" has the game played (training/env/offers.py), with the equilibrium as its demonstration. Raises
    ValueError for no or unknown kinds."""
    if not asks or not set(asks) <= set(ASKS):
        raise ValueError(f"alternating_offers: asks {list(asks)}: name some of {', '.join(ASKS)}")

    def drawn(rng: Random, *, coins: int, rounds: int) -> tuple[str, Spec]:
        return draw(rng, coins=coins, rounds=rounds, ask=rng.choice(list(asks)))

    problem = item(
        seed,
        split,
        index,
        levels,
        family="alternating_offers",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
        env=env,
    )
    if not isinstance(problem, Problem) or env != "offers":
        return problem
    pie, _ = told(problem.question)
    turn = f"<offer>{pie.keeps(2)}</offer>" if pie.yours else "<reply>accept</reply>"
    return replace(problem, lineage={**problem.lineage, "demonstration": [turn]})


def draw(rng: Random, *, coins: int, rounds: int, ask: str = "offer") -> tuple[str, Spec]:
    """One in ten is an ultimatum. All questions about a pie lie in one split."""
    most = 1 if rng.random() < 0.1 else rng.randint(2, rounds)
    whole = rng.randint(6, coins)
    loss = rng.randint(1, max(1, min(9, (whole - 1) // max(1, most - 1))))
    whole = max(whole, 1 + loss * (most - 1))
    pie = Pie(whole, loss, most, most == 1 or rng.random() < 0.5)
    return f"{whole} {loss} {most}", (pie, rng.randint(1, most) if ask == "keeps" else 0)


def pose(spec: Spec) -> dict[str, Any]:
    pie, asked_round = spec
    tells = {
        "coins": pie.coins,
        "rounds": f"{pie.rounds} round{'s' * (pie.rounds > 1)}",
        "loss": pie.loss,
        "first": "You offer" if pie.yours else "The other offers",
    }
    return {
        "prompt": WORDINGS["keeps"].write(asked=asked_round, **tells)
        if asked_round
        else WORDINGS["offer"].write(**tells),
        "answer": str(pie.keeps(asked_round or 2)),
        "verifier": "number",
        "working": f"{backwards(pie, asked_round or 2)}.",
    }


def backwards(pie: Pie, to: int) -> str:
    """What is there in each round, and what who offers keeps, from after the last round down to round `to`."""
    there = " ".join(str(pie.left(t)) for t in range(1, pie.rounds + 1))
    return f"{there}; {' '.join(str(pie.keeps(t)) for t in range(pie.rounds + 1, to - 1, -1))}"


def solve(question: str) -> str:
    kind, tells = read_kind(WORDINGS, question)
    there = [int(tells["coins"]) - t * int(tells["loss"]) for t in range(int(tells["rounds"].split()[0]))]
    asked_round = int(tells["asked"]) if kind == "keeps" else 0
    if there[-1] < 1 or not 0 <= asked_round <= len(there):
        raise Refused("impossible: the coins or the rounds run out before that")
    later = (0, 0)  # of who offers in the next round, and of who hears that offer
    keeps, offers = [], []
    for whole in reversed(there):
        ways = [(whole - x, x) if x >= later[0] else (later[1], later[0]) for x in range(whole + 1)]
        later = max(ways)  # (kept, offered): the other accepts no less than what he would keep as the next to offer
        keeps.append(later[0])
        offers.append(later[1])
    return str(keeps[len(there) - asked_round] if asked_round else offers[-1])
