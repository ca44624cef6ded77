"""Small molecules, written symbol by symbol for a protein that they should bind. A game with rules of chemistry: no claim of biology.

A molecule is a string of symbols in the manner of SELFIES (Krenn et al. 2020, arXiv 1905.13741): every string is a molecule, since a bond
that the valences do not allow is lowered to one that they do, and a string ends where no bond is left.

    [C] [N] [O] [F]      an atom with a single bond to the one before      [=C] [=N] [=O]    with a double bond
    [Branch]             the next atom hangs on the one before, and the one after it does too
    [Ring]               a bond to the atom four places back, where both have one left
    [End]

A protein is 8 letters of 6 kinds (small, oily, aromatic, polar, +, -). What binds it is a formula that nobody shows the policy: the size,
the share of N, O and F, and the double bonds and rings of a molecule should be those that the protein's counts of letters ask for.

    affinity = exp(-4 |d - wanted|^2)        d = (atoms / 10, share of N, O, F, (double bonds + rings) / 4)
    toxicity = 1 - 0.5^n                     n: atoms of F, and bonds between two of N, O, F
    score = affinity + w_toxicity (1 - toxicity), 0 for a molecule without atoms

Born et al. 2021, "PaccMann^RL on SARS-CoV-2: Designing antiviral candidates with conditional generative models" (arXiv 2005.13285). The
observation is the protein [48], a latent vector of the molecule [latent], and the symbols so far [10 x 11].
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("affinity", "toxicity", "success", "stage")
SYMBOLS = ("[End]", "[C]", "[N]", "[O]", "[F]", "[=C]", "[=N]", "[=O]", "[Branch]", "[Ring]")
MOST = 10  # symbols of a molecule
LETTERS, SITES, PROTEINS = 6, 8, 120
VALENCE = {"C": 4, "N": 3, "O": 2, "F": 1}
GOOD = 0.5  # affinity above which a molecule counts as a success


@dataclass
class Molecule:
    """atoms: their elements. bonds: (atom, atom, order), rings among them. rings: how many."""

    atoms: list[str] = field(default_factory=list)
    bonds: list[tuple[int, int, int]] = field(default_factory=list)
    rings: int = 0

    def left(self, i: int) -> int:
        """How many bonds atom i has left."""
        return VALENCE[self.atoms[i]] - sum(order for a, b, order in self.bonds if i in (a, b))


def parsed(text: str) -> list[int]:
    """The symbols of "[C][=O]". Raises ValueError for text that is no molecule."""
    words = re.findall(r"\[[^\[\]]*\]", text)
    if "".join(words) != text or not words or len(words) > MOST:
        raise ValueError(
            f"control/molecules: {text!r} does not parse: a molecule is 1 to {MOST} symbols in brackets, as [C][=C][O]"
        )
    for i, word in enumerate(words):
        if word not in SYMBOLS:
            raise ValueError(
                f"control/molecules: {text!r} does not parse: symbol {i + 1} is {word}, and those known are {' '.join(SYMBOLS)}"
            )
    return [SYMBOLS.index(w) for w in words]


def made(symbols: Sequence[int]) -> Molecule:
    """The molecule of these symbols; every sequence has one."""
    m, at, branch = Molecule(), -1, False
    for name in (SYMBOLS[i][1:-1] for i in symbols):
        if name == "End":
            break
        if name == "Branch":
            branch = at >= 0
        elif name == "Ring":
            other = at - 4
            if other >= 0 and m.left(at) and m.left(other) and not any({a, b} == {at, other} for a, b, _ in m.bonds):
                m.bonds.append((other, at, 1))
                m.rings += 1
        else:
            order, element = 1 + name.startswith("="), name.lstrip("=")
            if at < 0:
                m.atoms.append(element)
                at = 0
                continue
            order = min(order, m.left(at), VALENCE[element])
            if order <= 0:
                break
            m.atoms.append(element)
            m.bonds.append((at, len(m.atoms) - 1, order))
            at, branch = (at if branch else len(m.atoms) - 1), False
    return m


def described(m: Molecule) -> np.ndarray:
    """[3]: size, share of N, O, F, double bonds and rings."""
    hetero = sum(a != "C" for a in m.atoms) / max(len(m.atoms), 1)
    return np.array([len(m.atoms) / 10, hetero, (sum(order - 1 for _, _, order in m.bonds) + m.rings) / 4])


def toxicity(m: Molecule) -> float:
    n = m.atoms.count("F") + sum("C" not in (m.atoms[a], m.atoms[b]) for a, b, _ in m.bonds)
    return 1 - 0.5**n


def wanted(protein: np.ndarray) -> np.ndarray:
    """[3]: what binds the protein [8] of letters: size by small letters, N, O, F by polar and charged ones, double bonds by aromatic ones."""
    share = np.bincount(protein, minlength=LETTERS) / SITES
    return np.array(
        [0.9 - 0.6 * min(2 * share[0], 1), min(share[3] + share[4] + share[5], 0.8), min(2.5 * share[2], 1)]
    )


def affinity(m: Molecule, protein: np.ndarray) -> float:
    return math.exp(-4 * float(((described(m) - wanted(protein)) ** 2).sum()))


def protein_of(i: int) -> np.ndarray:
    """Letters [8] of protein i; its own mixture of kinds, so that proteins differ in their counts."""
    rng = np.random.default_rng(seed_for(i, "protein"))
    return rng.choice(LETTERS, size=SITES, p=rng.dirichlet(np.full(LETTERS, 0.7)))


@dataclass
class _State:
    protein: int
    latent: np.ndarray
    symbols: list[int] = field(default_factory=list)


class Molecules(World):
    network = "molecules"

    def __init__(
        self,
        *,
        test: bool,
        other: bool,
        w_toxicity: float,
        latent: int,
        hidden: int,
        warm: dict[str, Any],
        own: list[list[int]],
    ):
        self._test, self._other, self._w = test, other, w_toxicity
        self.latent, self.hidden, self.warm, self._own = latent, hidden, warm, own

    @property
    def shape(self) -> Shape:
        return Shape(observation=SITES * LETTERS + self.latent + MOST * (len(SYMBOLS) + 1), actions=len(SYMBOLS))

    @property
    def sizes(self) -> dict[str, int]:
        """What the network is told besides its shape."""
        return {"protein": SITES * LETTERS, "latent": self.latent}

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng = np.random.default_rng(seed_for(seed, "molecules"))
        i = int(rng.integers(PROTEINS // 5)) * 5 + (4 if self._test else int(rng.integers(4)))
        state = _State(i, rng.standard_normal(self.latent))
        return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        state.symbols.append(int(action))
        if SYMBOLS[action] != "[End]" and len(state.symbols) < MOST:
            return Step(observation=self._seen(state), reward=0.0, done=False)
        m = made(state.symbols)
        # The control: each protein is paid for what binds another one, always the same.
        protein = protein_of((state.protein * 7 + 13) % PROTEINS if self._other else state.protein)
        bound, toxic = (affinity(m, protein), toxicity(m)) if m.atoms else (0.0, 1.0)
        parts = {"affinity": bound, "toxicity": toxic, "success": float(bound > GOOD), "stage": float(bool(m.atoms))}
        return Step(observation=self._seen(state), reward=bound + self._w * (1 - toxic), done=True, parts=parts)

    def close(self, state: _State) -> None:
        pass

    def examples(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Symbols of molecules [n, 10] (0 after the end), and one-hot proteins [n, 48] that have nothing to do with them. Half as many
        of the user's own, if there are some."""
        symbols = np.zeros((n, MOST), dtype=np.int64)
        common = np.array([0.0, 0.34, 0.1, 0.1, 0.04, 0.14, 0.06, 0.06, 0.1, 0.06])
        for i in range(n):
            if self._own and i % 3 == 0:
                given = self._own[int(rng.integers(len(self._own)))]
                symbols[i, : len(given)] = given
            else:
                long = int(rng.integers(2, MOST + 1))
                symbols[i, :long] = rng.choice(len(SYMBOLS), size=long, p=common)
        proteins = np.stack([_letters(protein_of(PROTEINS + int(k))) for k in rng.integers(10**6, size=n)])
        return symbols, proteins

    def _seen(self, state: _State) -> np.ndarray:
        return np.concatenate([_letters(protein_of(state.protein)), state.latent, prefix(state.symbols)])


def prefix(symbols: Sequence[int]) -> np.ndarray:
    """[10 x 11]: which symbol is at each place; the last column says that there is none yet."""
    out = np.zeros((MOST, len(SYMBOLS) + 1))
    out[range(MOST), [*symbols, *[len(SYMBOLS)] * (MOST - len(symbols))]] = 1.0
    return out.ravel()


def _letters(protein: np.ndarray) -> np.ndarray:
    return np.eye(LETTERS)[protein].ravel()


def molecules(
    *,
    prompts: Literal["train", "test"] = "train",
    rewarded: Literal["own", "other"] = "own",
    w_toxicity: float = 0.5,
    latent: int = 16,
    warm_steps: int = 1200,
    hidden: int = 128,
    molecules: list = [],  # noqa: B006
) -> World:
    """prompts: which proteins are asked for: of 120, every fifth is kept for tests. rewarded: paid for what binds the protein that is seen, or always
    for what binds another one (a control). w_toxicity: weight of what is not toxic. latent: numbers of a latent vector. warm_steps, hidden: steps of
    the warm start, width of the network. molecules: molecules of your own for the warm start, as "[C][=C][O]"."""
    if prompts not in ("train", "test") or rewarded not in ("own", "other"):
        raise ValueError(
            f"control/molecules: prompts is {prompts!r} and rewarded {rewarded!r}: train or test, own or other"
        )
    if not 0 <= w_toxicity < math.inf or min(latent, hidden) < 1 or warm_steps < 0:
        raise ValueError(
            f"control/molecules: w_toxicity is {w_toxicity}, latent {latent}, hidden {hidden}, warm_steps {warm_steps}: weights and sizes are from 0 and from 1"
        )
    return Molecules(
        test=prompts == "test",
        other=rewarded == "other",
        w_toxicity=w_toxicity,
        latent=latent,
        hidden=hidden,
        warm={"steps": warm_steps, "rows": 128, "lr": 2e-3, "molecules": list(molecules)},
        own=[parsed(m) for m in molecules],
    )
