"""The data of `benchmarks/cleaning.py`: pairs whose truth is known, noise planted on them, and what is learned from
them, measured."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from synth.preferences.cleaners._features import BLIND, features
from synth.preferences.cleaners._length import style
from synth.preferences.noise_kinds import flips, mixture
from synth.types import Message, seed_for

GSM8K = Path(__file__).resolve().parents[2] / "shared" / "data" / "gsm8k" / "example_model_solutions.jsonl"
PAIRS, HELD_OUT, PROMPTS, ANSWERS, FEATURES = 4000, 2000, 500, 8, 24
LENGTH, STYLE = 0, 1  # which of the simulated features they are
ANCHORS = 50
VOTERS = 6


@dataclass
class Pool:
    """Pairs, better side first, and what is held out. Features of better minus worse, lengths in any unit."""

    difference: np.ndarray  # [n, d]
    margin: np.ndarray  # [n] > 0
    length: np.ndarray  # [n] of better minus worse
    style: np.ndarray  # [n]
    sides: np.ndarray  # [n, 2] lengths of better and worse
    groups: list[str]
    hidden: list[int]  # columns of features that a blind detector leaves out
    test: np.ndarray  # [m, d] held-out pairs, better minus worse
    prompts: list[
        tuple[np.ndarray, np.ndarray]
    ]  # held-out prompts: features of answers [k, d], whether each is right [k]
    # Columns about the better side.
    extra: Callable[[np.random.Generator], dict[str, np.ndarray]] = field(default=lambda rng: {})


@dataclass
class Trial:
    """One noisy set. `visible` is all that cleaners are given; `wrong` stays here."""

    visible: dict[str, Any]
    wrong: np.ndarray
    scored: np.ndarray  # detection is measured where no anchor tells the truth
    chosen_length: np.ndarray
    pool: Pool
    seed: int

    @property
    def n(self) -> int:
        return len(self.wrong)

    def held_out(self, weight: np.ndarray, flip: np.ndarray) -> np.ndarray:
        """[m] whether the reward model orders each held-out pair rightly."""
        from sklearn.linear_model import LogisticRegression

        x, w = self._kept(weight, flip)
        model = LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000)
        model.fit(np.concatenate([x, -x]), np.repeat([1, 0], len(x)), sample_weight=np.tile(w, 2))
        return self.pool.test @ model.coef_[0] > 0

    def policy(self, weight: np.ndarray, flip: np.ndarray, *, steps: int = 40, hidden: int = 32) -> np.ndarray:
        """[prompts] whether the first choice of a policy trained with the DPO loss is right."""
        import torch

        from training.preference.loss.dpo import dpo

        x, w = (torch.from_numpy(v.astype(np.float32)) for v in self._kept(weight, flip))
        torch.manual_seed(self.seed)
        net = torch.nn.Sequential(
            torch.nn.Linear(x.shape[1], hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1, bias=False)
        )
        # Log-probs of answers are logits up to a term of the prompt that cancels in a pair; its sides are placed at
        # +-half their difference.
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.03, weight_decay=0.01)
        none = torch.zeros(len(x))
        for _ in range(steps):
            loss = (w * dpo(net(x / 2)[:, 0], net(-x / 2)[:, 0], none, none, none, none, beta=1.0)).sum() / w.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            choices = [
                int(net(torch.from_numpy((a - a.mean(axis=0)).astype(np.float32)))[:, 0].argmax())
                for a, _ in self.pool.prompts
            ]
        return np.array([right[i] for (_, right), i in zip(self.pool.prompts, choices, strict=True)])

    def _kept(self, weight: np.ndarray, flip: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kept = weight > 0
        return np.where(flip[kept, None], -1, 1) * self.visible["difference"][kept], weight[kept]


def trial(data: str, kind: str, rate: float, seed: int) -> Trial:
    """Pairs of one source with one kind of noise; all of it follows from the arguments."""
    rng = np.random.default_rng(seed_for("cleaning", data, kind, rate, seed))
    pool = DATA[data].make(np.random.default_rng(seed_for("cleaning pool", data, seed)))
    n, rows, votes, labeller = len(pool.margin), np.arange(len(pool.margin)), None, None
    if kind == "mixture":
        wrong, labeller, votes = mixture(n, rate, rng)
    elif kind == "duplicate":
        rows = np.concatenate([rows, rng.choice(n, round(rate * n / (1 - rate)), replace=False)])
        wrong = np.arange(len(rows)) >= n
        order = rng.permutation(len(rows))
        rows, wrong = rows[order], wrong[order]
    else:
        wrong = flips(kind, rate, rng, margin=pool.margin, length=pool.length, style=pool.style)
    sign = np.where(wrong, -1, 1)
    anchored = np.isin(np.arange(len(rows)), rng.choice(len(rows), ANCHORS, replace=False))
    sides = np.where(wrong[:, None], pool.sides[rows, ::-1], pool.sides[rows])
    about_better = pool.extra(rng) | ({"votes": votes.T} if votes is not None else {})
    visible = {
        "difference": pool.difference[rows] * sign[:, None],
        "groups": [pool.groups[i] for i in rows],
        "rows": rows.tolist(),  # which pair it is: two copies have the same; the order says nothing
        "turned": wrong if kind == "duplicate" else None,
        "hidden": pool.hidden,
        "anchor": np.where(anchored, sign, 0),
        "annotator": None if labeller is None else labeller.tolist(),
        **{
            name: (value[..., rows] * sign if name != "ifd" else np.where(wrong, value[::-1][:, rows], value[:, rows]))
            for name, value in about_better.items()
        },
    }
    visible["texts"] = texts(visible.pop("turned"), rows) if kind == "duplicate" else None
    return Trial(visible=visible, wrong=wrong, scored=~anchored, chosen_length=sides[:, 0], pool=pool, seed=seed)


def texts(turned: np.ndarray, rows: np.ndarray) -> list[tuple[str, str, str]]:
    """(prompt, chosen, rejected) of pairs that come twice, as letters: equal where the pair is, the sides in the order
    of the label."""

    def words(*key: object) -> str:
        draw = np.random.default_rng(seed_for("words", *map(str, key)))
        return " ".join("".join(chr(97 + c) for c in draw.integers(0, 26, 5)) for _ in range(10))

    triples = [(words(i, "p"), words(i, "a"), words(i, "b")) for i in rows]
    return [(p, b, a) if t else (p, a, b) for (p, a, b), t in zip(triples, turned, strict=True)]


def simulated(rng: np.random.Generator, *, length_weight: float = 0.0) -> Pool:
    truth = rng.normal(size=FEATURES)
    truth[LENGTH], truth[STYLE] = length_weight, 0.0

    def pairs(n: int) -> np.ndarray:
        a, b = rng.normal(size=(2, n, FEATURES))
        first = (a - b) @ truth > 0
        return np.where(first[None, :, None], (a, b), (b, a))

    both, held = pairs(PAIRS), pairs(HELD_OUT)
    difference = both[0] - both[1]
    margin = difference @ truth
    answers = rng.normal(size=(PROMPTS, ANSWERS, FEATURES))
    utility = answers @ truth
    return Pool(
        difference=difference,
        margin=margin,
        length=difference[:, LENGTH],
        style=difference[:, STYLE],
        sides=both[:, :, LENGTH].T,
        groups=[str(i) for i in range(PAIRS)],
        hidden=[LENGTH, STYLE],
        test=held[0] - held[1],
        prompts=[(a, u == u.max()) for a, u in zip(answers, utility, strict=True)],
        extra=lambda rng: judges(margin, rng),
    )


def judges(margin: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Outside opinions about the better side: six reward models that are right in about 0.8 of pairs and err more on
    close calls, half of their error shared, and a judge's score gap that is right in about 0.85."""
    z = margin / margin.std()
    shared = rng.normal(size=len(z))
    noisy = [z + 0.75 * (np.sqrt(0.5) * shared + np.sqrt(0.5) * rng.normal(size=len(z))) for _ in range(VOTERS)]
    return {"voters": np.sign(np.stack(noisy)), "judge": np.round(4 * (z + 0.5 * rng.normal(size=len(z))))}


def gsm8k(rng: np.random.Generator) -> Pool:
    """Right against wrong solutions of the same problem by four models, half of the problems held out."""
    lines = [json.loads(line) for line in GSM8K.open(encoding="utf-8")]
    models = [k for k in lines[0] if k not in ("question", "ground_truth")]
    mixed = [x for x in lines if len({x[m]["is_correct"] for m in models}) == 2]
    order = rng.permutation(len(mixed))
    train, held = ([mixed[i] for i in part] for part in np.array_split(order, 2))
    names: dict[str, int] = {}
    rows = {k: [_vector(x["question"], x[m]["solution"], names) for m in models] for k, x in enumerate(mixed)}

    def vector(x: dict, m: int) -> np.ndarray:
        out = np.zeros(len(names))
        for name, value in rows[mixed.index(x)][m].items():
            out[names[name]] = value
        return out

    def pairs(problems: list[dict]) -> list[tuple[dict, int, int]]:
        return [
            (x, a, b)
            for x in problems
            for a in range(4)
            for b in range(4)
            if x[models[a]]["is_correct"] and not x[models[b]]["is_correct"]
        ]

    chosen = pairs(train)
    difference = np.stack([vector(x, a) - vector(x, b) for x, a, b in chosen])
    scale = np.maximum(difference.std(axis=0), 1e-9)
    size = np.array([[len(x[models[a]]["solution"]), len(x[models[b]]["solution"])] for x, a, b in chosen], float)
    votes = np.array([[_vote(x, models, m, a, b) for x, a, b in chosen] for m in range(4)])
    ifd = np.array(
        [[_ifd(x["question"], x[models[s]]["solution"]) for x, *ab in chosen for s in [ab[k]]] for k in range(2)]
    )
    return Pool(
        difference=difference / scale,
        margin=np.ones(len(chosen)),
        length=size[:, 0] - size[:, 1],
        style=np.zeros(len(chosen)),
        sides=size,
        groups=[x["question"] for x, _, _ in chosen],
        hidden=[i for name, i in names.items() if name in BLIND | style("").keys()],
        test=np.stack([(vector(x, a) - vector(x, b)) / scale for x, a, b in pairs(held)]),
        prompts=[
            (np.stack([vector(x, m) for m in range(4)]) / scale, np.array([x[m]["is_correct"] for m in models]))
            for x in held
        ],
        extra=lambda rng: {"votes": votes, "ifd": ifd},
    )


def _vector(question: str, text: str, names: dict[str, int]) -> dict[str, float]:
    counts = features((Message(role="user", content=question),), _tagged(text)) | style(text)
    plain = {k: float(v) for k, v in counts.items() if ": " not in k}
    for name in plain:
        names.setdefault(name, len(names))
    return plain


def _tagged(solution: str) -> str:
    working, _, answer = solution.rpartition("A:")
    return f"{working}<answer>{answer.strip()}</answer>"


def _answer(solution: str) -> str:
    return solution.rpartition("A:")[2].strip().replace(",", "")


def _vote(x: dict, models: list[str], voter: int, a: int, b: int) -> int:
    """A model that wrote neither side votes for the side that ends in its own answer."""
    if voter in (a, b):
        return 0
    mine, first, second = (_answer(x[models[k]]["solution"]) for k in (voter, a, b))
    return (mine == first) - (mine == second)


def _ifd(question: str, answer: str) -> float:
    """A stand-in for IFD without a model: bytes that the answer adds to the compressed question, over its own
    compressed bytes."""
    size = lambda text: len(zlib.compress(text.encode(), 9))  # noqa: E731
    return (size(question + "\n" + answer) - size(question)) / max(1, size(answer) - size(""))


@dataclass(frozen=True)
class Source:
    make: Callable[[np.random.Generator], Pool]
    available: Callable[[], bool] = lambda: True


DATA = {
    "simulated": Source(simulated),
    "length tells": Source(lambda rng: simulated(rng, length_weight=1.0)),
    "gsm8k": Source(gsm8k, GSM8K.exists),
}
