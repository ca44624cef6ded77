"""The prefix filter against a comparison of all sets with all."""

from itertools import combinations

import numpy as np
import pytest

from synth.preferences.cleaners import _prefix_filter, _prompts
from synth.preferences.cleaners._grams import frequencies, jaccard
from synth.preferences.cleaners._prefix_filter import keys, short
from synth.preferences.cleaners._prompts import Prompts, classes
from synth.preferences.cleaners.duplicates import duplicates
from synth.types import Message, PreferencePair

THRESHOLDS = (0.3, 0.5, 0.7, 0.85, 1.0)


def drawn(rng: np.random.Generator, n: int, most: int) -> list[np.ndarray]:
    """Sets about a few forms, of which some differ by a few grams, and grams of which some are in many sets."""
    forms = [
        rng.choice(np.arange(40, dtype=np.uint32) << 20, size=rng.integers(1, most), replace=False) for _ in range(6)
    ]
    out = [forms[0][:1], forms[0][:1]]
    for _ in range(n):
        form = forms[rng.integers(len(forms))]
        kept = form[rng.random(len(form)) < rng.choice([1.0, 0.9, 0.7])]
        own = rng.integers(1 << 32, size=rng.integers(0, 4), dtype=np.uint32)
        out.append(np.unique(np.concatenate([kept, own, forms[0][:1]])))
    return out


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_similar_sets_share_a_key_that_may_be_their_first(monkeypatch, threshold):
    monkeypatch.setattr(_prefix_filter, "OFTEN", 5)
    monkeypatch.setattr(_prefix_filter, "PLACES", 4)
    rng, similar = np.random.default_rng(7), 0
    for _ in range(8):
        sets = drawn(rng, 60, 20)
        often = frequencies([sets], sum(map(len, sets)), 26)
        found = keys(sets, often, threshold)
        size = np.array([len(x) for x in sets])[found.owner]
        first = short(found.rest, size, threshold)
        every = [
            dict(zip(found.key[mine].tolist(), found.rest[mine].tolist(), strict=True))
            for k in range(len(sets))
            for mine in [found.owner == k]
        ]
        few = [set(found.key[(found.owner == k) & first].tolist()) for k in range(len(sets))]
        for a, b in combinations(range(len(sets)), 2):
            if jaccard(sets[a], sets[b]) < threshold:
                continue
            y, x = sorted((a, b), key=lambda k: len(sets[k]))
            similar += 1
            needed = threshold / (1 + threshold) * (len(sets[x]) + len(sets[y])) - 1e-9
            assert any(every[x].get(key, 0) >= needed and every[y][key] >= needed for key in few[y])
    assert similar > 50


def test_what_a_form_has_in_common_leads_nowhere():
    """Two thousand sets of one form, five of eight grams, of which no two are similar: a gram of the form was a key of all."""
    rng = np.random.default_rng(1)
    form = np.arange(5, dtype=np.uint32) << 20
    sets = [np.unique(np.append(form, rng.integers(1 << 32, size=3, dtype=np.uint32))) for _ in range(2000)]
    found = keys(sets, frequencies([sets], 16_000, 26), 0.7)
    first = short(found.rest, np.array([len(x) for x in sets])[found.owner], 0.7)
    assert np.unique(found.key[first], return_counts=True)[1].max() < 10


def test_large_sets_of_one_form_have_a_key_for_each_place():
    """Not for each two of them: 300 places would be 45,000."""
    form = np.arange(1000, dtype=np.uint32) << 20
    sets = [np.sort(np.append(form, np.uint32(k * 7 + 3))) for k in range(300)]
    found = keys(sets, frequencies([sets], 300_300, 26), 0.7)
    assert 0 < len(found.key) < 310 * 300


def test_a_language_of_few_words_leads_few_together():
    """Each of 60 grams is in 600 of 3000 sets, and was by itself a key of up to 573."""
    rng = np.random.default_rng(2)
    sets = [np.sort(rng.choice(60, size=12, replace=False)).astype(np.uint32) << 20 for _ in range(3000)]
    found = keys(sets, frequencies([sets], 36_000, 26), 0.7)
    assert np.unique(found.key, return_counts=True)[1].max() < 150


@pytest.mark.parametrize("most", (3, 1000))
def test_couples_are_all_but_those_inside_the_largest_class(monkeypatch, most):
    monkeypatch.setattr(_prompts, "COUPLES", most)
    rng, both = np.random.default_rng(4), 0.7 / 1.7
    group = np.sort(rng.integers(6, size=80))
    size = rng.integers(6, 10, size=80)
    size = size[np.lexsort((size, group))]
    rest, root = size - rng.integers(4, size=80), rng.integers(3, size=80) * (rng.random(80) < 0.5)
    found = [
        (a, b)
        for y, x in _prompts._couples(group, size, rest, root, 0.7)
        for a, b in zip(y.tolist(), x.tolist(), strict=True)
    ]
    largest = {g: np.bincount(root[group == g]).argmax() for g in range(6)}
    expected = {
        (a, b)
        for a, b in combinations(range(80), 2)
        if group[a] == group[b]
        and size[a] >= 0.7 * size[b]
        and min(rest[a], rest[b]) >= both * (size[a] + size[b])
        and {root[a], root[b]} != {largest[group[a]]}
    }
    assert len(found) == len(set(found)) and set(found) == expected and len(expected) > 50


TEMPLATES = (
    "Tell me which continent {} lies on, as far as you know it",
    "What is the currency of {}?",
    "On a map, where is {}?",
)


def templated(n: int) -> list[str]:
    rng = np.random.default_rng(3)
    names = [" ".join(f"n{rng.integers(15)}x" for _ in range(rng.integers(1, 3))) for _ in range(n)]
    return [
        TEMPLATES[rng.integers(len(TEMPLATES))].format(name.translate(str.maketrans("0123456789", "abcdefghij")))
        for name in names
    ]


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_classes_are_those_of_all_with_all(monkeypatch, threshold):
    monkeypatch.setattr(_prefix_filter, "OFTEN", 8)
    monkeypatch.setattr(_prompts, "COUPLES", 50)
    monkeypatch.setattr(_prompts, "KEYS", 300)
    prompts = Prompts(templated(250), 2, str.encode)
    above = list(range(len(prompts)))

    def root(k: int) -> int:
        return k if above[k] == k else root(above[k])

    sets = [prompts.grams(k) for k in range(len(prompts))]
    for a, b in combinations(range(len(sets)), 2):
        if prompts.numbers[a] == prompts.numbers[b] and jaccard(sets[a], sets[b]) >= threshold:
            p, q = root(a), root(b)
            above[max(p, q)] = min(p, q)
    expected = [root(k) for k in range(len(sets))]
    assert classes(prompts, threshold).tolist() == expected
    assert threshold == 1.0 or len(set(expected)) < len(sets)


@pytest.mark.parametrize("threshold", (0.5, 0.7, 0.9))
def test_copies_are_those_that_all_with_all_would_find(monkeypatch, threshold):
    monkeypatch.setattr(_prefix_filter, "OFTEN", 8)
    rng = np.random.default_rng(5)
    pairs = [
        PreferencePair.make(
            prompt=[Message(role="user", content=text)],
            chosen=f"It is {a}, as far as I know.",
            rejected=f"I would say that it is {b}.",
            source="made",
            split="train",
        )
        for text, a, b in zip(
            templated(300),
            *np.array(["red", "blue", "so and so", "rather grey"])[rng.integers(4, size=(2, 300))],
            strict=True,
        )
    ]
    found = list(duplicates(pairs, threshold=threshold))
    monkeypatch.setattr(
        "synth.preferences.cleaners.duplicates._meeting",
        lambda a, b, i: [j for j in range(i) if any(j in x for x in a.pairs)],
    )
    monkeypatch.setattr(
        "synth.preferences.cleaners.duplicates._Index.alike", lambda self, a, b: jaccard(self.grams[a], self.grams[b])
    )
    expected = list(duplicates(pairs, threshold=threshold))
    assert found == expected and 5 < sum(d.action == "remove" for d in expected) < 295
