"""DPO from Python: a model learns to prefer short answers. CPU, about ten seconds.

    python examples/dpo.py

In TRL's words: `PreferencePair` is a row of the dataset (prompt, chosen, rejected), `PairObjective` the loss with its
reference model, `Round` the trainer, `run` is `trainer.train()`. Another loss is another import: `ipo`, `simpo`, `kto`, ...
in training/preference/loss, all with one signature.
"""

import copy
from functools import partial

from synth.types import Message, PreferencePair
from training.learner.learner import Learner, Optim, nll
from training.learner.loop import Round, run
from training.learner.pack import pack
from training.learner.rows import demonstration_row, pair_rows, weighted
from training.model.model import new_model, train_tokenizer
from training.model.render import Renderer
from training.preference.loss.dpo import dpo
from training.preference.objective import PairObjective

FACTS = {"Norvia": "Zelton", "Jelton": "Marsa", "Tulia": "Orben", "Vasta": "Kilmo", "Perrin": "Dacha", "Lomar": "Suvel"}


def asked(country: str) -> tuple[Message, ...]:
    return (Message(role="user", content=f"Capital of {country}?"),)


def short(country: str) -> str:
    return f"{FACTS[country]}."


def long(country: str) -> str:
    return f"Well, I think that the capital of {country} is {FACTS[country]}."


PAIRS = [
    PreferencePair.make(prompt=asked(c), chosen=short(c), rejected=long(c), source="example", split="train")
    for c in FACTS
]


def starting_model(seed: int):
    """A model of 50,000 weights that gives the long answer twice as often as the short one. With a real model, call
    `training.model.model.load_model("Qwen/Qwen3-0.6B")` instead, which gives the same pair."""
    tokenizer = train_tokenizer([f"{asked(c)[0].content} {short(c)} {long(c)}" for c in FACTS] * 20, vocab_size=320)
    sizes = dict(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=64, max_length=96, init_range=0.1)
    model = new_model(tokenizer, seed=seed, **sizes)
    learner = Learner(model, Optim(lr=1e-2, steps=60))
    rows = [
        demonstration_row(
            Renderer(tokenizer), [*asked(c), Message(role="assistant", content=say(c))], context_weight=0.0
        )
        for c in FACTS
        for say in (short, long, long)
    ]
    for _ in range(60):
        learner.step(weighted(rows, "cpu"), nll)
    return model, tokenizer


def main(steps: int = 30, seed: int = 0) -> list[dict[str, float]]:
    """Train for `steps` steps. Returns the metrics of each: loss, accuracy, margin, ..."""
    model, tokenizer = starting_model(seed)
    rows, too_long = pair_rows(Renderer(tokenizer), PAIRS, max_tokens=96)  # row 2i chosen, row 2i + 1 rejected
    objective = PairObjective(
        loss=partial(dpo, beta=0.1),
        policy=model,
        reference=copy.deepcopy(model),
        needs=frozenset({"reference"}),
    )
    dpo_round = Round(
        name="dpo",
        role="policy",
        source=lambda step: ([pack(rows)], {}),  # the batches of a step, and metrics of making them
        objective=objective,
        prepare=objective.prepare,  # the reference's log-probs, once per batch
        steps=steps,
        rows_per_unit=2,  # a pair is never split over micro-batches
    )
    roles = {"policy": Learner(model, Optim(lr=1e-3, steps=steps, warmup=0, weight_decay=0.0))}
    curve = []
    for _, step, metrics in run([dpo_round], roles):
        curve.append(metrics)
        if step % 5 == 0 or step == steps - 1:
            print("step {:3}  loss {loss:.3f}  accuracy {accuracy:.2f}  margin {margin:.2f}".format(step, **metrics))
    return curve


if __name__ == "__main__":
    main()
