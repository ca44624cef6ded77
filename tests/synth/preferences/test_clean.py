"""Cleaners: duplicates and contradictions among made pairs, confident learning against its definition and against
cleanlab."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression

from synth.families.countdown import countdown
from synth.families.linear_equations import linear_equations
from synth.families.list_sorting import list_sorting
from synth.preferences.cleaners._features import Known, differences, features, jaccard, kind, share, tokens
from synth.preferences.cleaners._grams import gram_sets
from synth.preferences.cleaners._length import style
from synth.preferences.cleaners._noise import ranks
from synth.preferences.cleaners.confident_learning import (
    confident_joint,
    confident_learning,
    noise_rate,
    noise_rate_of_pairs,
    prune_by_noise_rate,
    symmetric,
)
from synth.preferences.cleaners.duplicates import _written, duplicates
from synth.preferences.cleaning import fitted
from synth.preferences.injected_errors import injected_errors
from synth.preferences.label_noise import label_noise
from synth.types import Message, PreferencePair
from tasks.planning.pieces import bind


def pair(prompt: str, chosen: str, rejected: str, source: str = "test", **columns) -> PreferencePair:
    return PreferencePair.make(
        prompt=[Message(role="user", content=prompt)],
        chosen=chosen,
        rejected=rejected,
        source=source,
        columns=columns,
        split="train",
    )


BASE = pair("What is the capital of Norvia?", "<search>capital of Norvia</search>", "<search>river of Norvia</search>")


def reasons(*pairs: PreferencePair, **knobs) -> list[str]:
    return [d.reason.partition(":")[0] for d in duplicates(pairs, **knobs)]


@pytest.mark.parametrize(
    "other, expected",
    [
        (replace(BASE, id="copy", source="again"), ["unique", "exact_duplicate"]),
        (
            replace(BASE, id="case", prompt=(Message(role="user", content="what is  the CAPITAL of norvia?"),)),
            ["unique", "exact_duplicate"],
        ),
        (
            replace(
                BASE, id="please", prompt=(Message(role="user", content="Please: what is the capital of Norvia?"),)
            ),
            ["unique", "near_duplicate"],
        ),
        (replace(BASE, id="swap", chosen=BASE.rejected, rejected=BASE.chosen), ["contradiction", "contradiction"]),
        (replace(BASE, id="other error", rejected="<search>capital of Karvia</search>"), ["unique", "unique"]),
        (
            pair(
                "What is the capital of Karvia?",
                "<search>capital of Karvia</search>",
                "<search>river of Karvia</search>",
            ),
            ["unique", "unique"],
        ),
    ],
)
def test_duplicates_and_contradictions(other, expected):
    assert reasons(BASE, other) == expected


def test_numbers_and_signs_are_never_near():
    long = "Add these: " + " ".join(map(str, range(30)))
    assert reasons(pair(long, "435", "434"), pair(long.replace(" 7 ", " 8 "), "435", "434")) == ["unique", "unique"]
    assert reasons(pair("Negate 5.", "-5", "5"), pair("Negate 5.", "5", "-5")) == ["contradiction", "contradiction"]


def test_first_of_a_group_is_kept_and_names_are_given():
    copies = [replace(BASE, id=f"c{i}") for i in range(3)]
    decisions = duplicates([BASE, *copies])
    assert [d.action for d in decisions] == ["keep", "remove", "remove", "remove"] and {
        d.reason for d in decisions[1:]
    } == {f"exact_duplicate: {BASE.id}"}
    assert duplicates([]) == []


@pytest.mark.parametrize("bad", [{"threshold": 0}, {"ngram": 0}])
def test_duplicates_refuses(bad):
    with pytest.raises(ValueError, match="must lie in"):
        duplicates([BASE], **bad)


def test_planted_copies_are_found_and_others_are_not():
    results = [
        injected_errors(5, f(5, "train", i, levels=[1]), 0)
        for f in (linear_equations, countdown, list_sorting)
        for i in range(120)
    ]
    clean = list({p.id: p for p in results if isinstance(p, PreferencePair)}.values())
    pairs, truth = label_noise(clean, Random(2), flip=0.1, exact=0.1, near=0.1, contradiction=0.1)
    removed = {p.id for p, d in zip(pairs, duplicates(pairs), strict=True) if d.action == "remove"}
    planted = {t.id for t in truth if t.copy}
    partners = planted | {t.of for t in truth if t.copy}
    assert removed <= partners, "a pair that was never copied was removed"
    groups = sum(any(x in removed for x in (t.id, t.of)) for t in truth if t.copy)
    assert groups >= 0.97 * len(planted)


def naive_joint(labels, p):
    """The definition, one row at a time."""
    k = p.shape[1]
    t = [np.mean([row[j] for row, label in zip(p, labels, strict=True) if label == j]) for j in range(k)]
    c = [[0.0] * k for _ in range(k)]
    for row, label in zip(p, labels, strict=True):
        inside = [j for j in range(k) if row[j] >= t[j] - 1e-6]
        if inside:
            c[label][max(inside, key=lambda j: row[j])] += 1
    for j in range(k):
        c[j][j] = max(1.0, c[j][j])
    return np.array([[x * list(labels).count(i) / sum(row) for x in row] for i, row in enumerate(c)])


def noisy(seed: int, n: int = 300, k: int = 3, rate: float = 0.2):
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    z = rng.normal(size=(n, k)) + 2.0 * np.eye(k)[truth]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    labels = np.where(rng.random(n) < rate, rng.integers(0, k, n), truth)
    labels[:k] = np.arange(k)
    return labels, p, truth


@pytest.mark.parametrize("k", [2, 3, 5])
def test_confident_joint_is_its_definition(k):
    labels, p, _ = noisy(k, k=k)
    assert np.allclose(confident_joint(labels, p), naive_joint(labels, p))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_confident_learning_agrees_with_cleanlab(k):
    filter_ = pytest.importorskip(
        "cleanlab.filter", reason="cleanlab, the reference implementation, is not installed (it is no dependency)"
    )
    from cleanlab.count import compute_confident_joint

    for seed in range(5):
        labels, p, _ = noisy(seed, k=k)
        # cleanlab rounds to whole counts.
        assert np.abs(confident_joint(labels, p) - compute_confident_joint(labels, p)).max() <= 1.0
        theirs = filter_.find_label_issues(labels, p, filter_by="prune_by_noise_rate", n_jobs=1)
        assert (prune_by_noise_rate(labels, p) != theirs).sum() <= k  # the one row at each cut that rounding may move


def test_pruning_finds_more_errors_than_chance():
    labels, p, truth = noisy(1, n=1000, k=2)
    wrong, pruned = labels != truth, prune_by_noise_rate(labels, p)
    assert wrong[pruned].mean() > 0.6 > 3 * wrong.mean() and noise_rate(labels, p) == pytest.approx(
        wrong.mean(), abs=0.1
    )


def test_absent_class_and_uncertain_rows_do_no_harm():
    labels, p = np.zeros(4, dtype=int), np.full((4, 2), 0.5)
    assert confident_joint(labels, p).tolist() == [[4.0, 0.0], [0.0, 0.0]] and not prune_by_noise_rate(labels, p).any()


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=40))
def test_pairs_are_judged_alike_in_both_orders(right):
    labels, p = symmetric(np.array(right))
    joint = confident_joint(labels, p)
    assert joint.sum() == pytest.approx(2 * len(right)) and np.allclose(joint, joint[::-1, ::-1])
    both = prune_by_noise_rate(labels, p).reshape(2, -1)
    assert (both[0] == both[1]).all()
    decisions = confident_learning([pair(str(i), "a", "b", out_of_fold=x) for i, x in enumerate(right)])
    assert [d.action == "remove" for d in decisions] == both[0].tolist() and all(
        x < 0.5 for x, d in zip(right, decisions, strict=True) if d.action == "remove"
    )


@pytest.mark.parametrize("bad", [None, 1.5, float("nan"), "0.5"])
def test_confident_learning_needs_its_column(bad):
    with pytest.raises(ValueError, match="needs a probability"):
        confident_learning([pair("p", "a", "b", out_of_fold=bad)])
    assert confident_learning([]) == []


def test_features_see_consistency_and_not_truth():
    prompt = [
        Message(role="user", content="What is the capital of Norvia?"),
        Message(role="assistant", content="<search>capital of Norvia</search>"),
        Message(role="tool", content="The capital of Norvia is Zelton.\nThe river of Norvia is Danu."),
    ]
    right, wrong = features(prompt, "<answer>Zelton</answer>"), features(prompt, "<answer>Danu</answer>")
    assert (
        right["line fits last query"] > wrong["line fits last query"]
        and right["in last result"] == wrong["in last result"] == 1.0
    )
    assert kind(prompt) == "1 read" and kind([Message(role="user", content="Sort: 3 1 2")]) == "sort"
    two = [
        features([Message(role="user", content="Solve 3x + 1 = 7.")], f"3x = 6, x = {x} <answer>{x}</answer>")
        for x in (2, 5)
    ]
    assert two[0] == two[1], "a consistent wrong solution must look like a right one: nothing is computed"
    assert (
        share(tokens("a b"), tokens("b c")) == 0.5
        and jaccard(tokens("a a b"), tokens("a b b")) == 0.5
        and jaccard(tokens(""), tokens("")) == 0.0
    )
    assert features([Message(role="user", content="?")], "")["words"] == 0.0


def grams(text: str, n: int) -> frozenset:
    words = re.findall(r"\w+|[^\w\s]", re.sub(r"</?\w+>", " ", text.lower()))
    return frozenset(tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1)))


def by_definition(pairs: list[PreferencePair], threshold: float, n: int) -> list[tuple[str, str, float]]:
    """(action, reason, score) of every pair, from comparing it with all before it that are no copies."""
    sides = [[grams(t, n) for t in (f"user: {p.prompt[0].content}", p.chosen, p.rejected)] for p in pairs]
    numbers = [
        [sorted(re.findall(r"\d+", p.prompt[0].content))]
        + sorted(sorted(re.findall(r"\d+", t)) for t in (p.chosen, p.rejected))
        for p in pairs
    ]
    out, copies = [("keep", "unique", 0.0)] * len(pairs), set()
    alike = lambda a, b: len(a & b) / len(a | b)  # noqa: E731
    for i, (prompt, chosen, rejected) in enumerate(sides):
        for j in range(i):
            one = alike(prompt, sides[j][0])
            same = min(one, alike(chosen, sides[j][1]), alike(rejected, sides[j][2]))
            crossed = min(one, alike(chosen, sides[j][2]), alike(rejected, sides[j][1]))
            if j in copies or numbers[i] != numbers[j] or max(same, crossed) < threshold:
                continue
            if crossed > same:
                out[i], out[j] = (("remove", f"contradiction: {pairs[k].id}", crossed) for k in (j, i))
                continue
            texts = [(q.prompt[0].content.split(), q.chosen.split(), q.rejected.split()) for q in (pairs[i], pairs[j])]
            out[i] = ("remove", f"{'exact' if texts[0] == texts[1] else 'near'}_duplicate: {pairs[j].id}", same)
            copies.add(i)
            break
    return out


@pytest.mark.parametrize("seed, threshold, n", [(8, 0.7, 2), (9, 0.5, 1), (10, 0.8, 3), (11, 1.0, 2)])
def test_duplicates_are_those_of_the_definition(seed, threshold, n):
    rng = Random(seed)
    words = ["red", "green", "blue", "old", "new", "warm", "7", "12", "<b>"]
    prompts = [" ".join(rng.choices("abcdefgh", k=20)) for _ in range(3)]
    bases = [rng.choices(words, k=rng.randrange(1, 12)) for _ in range(6)]

    def side():
        return " ".join(w if rng.random() < 0.95 else rng.choice(words) for w in rng.choice(bases))

    def asked():
        return " ".join(w if rng.random() < 0.98 else rng.choice("abcdefgh") for w in rng.choice(prompts).split())

    some = [replace(pair(asked(), side(), side()), id=f"{i:04d}") for i in range(300)]
    decisions = [(d.action, d.reason, d.score) for d in duplicates(some, threshold=threshold, ngram=n)]
    assert decisions == by_definition(some, threshold, n)
    assert {"exact_duplicate", "contradiction", "unique"} <= {r.partition(":")[0] for _, r, _ in decisions}


# Letters, marks, blanks, tags and digits of ASCII and of Unicode.
TEXTS = st.text(st.sampled_from("aAbß7٣é_ \n\t\u00a0\u2028<>/b.,!-—“”…ﬁ①汉\u0301\x00\x1c"), max_size=25)


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_the_grams_of_a_text_are_those_of_its_words_in_unicode(texts, n):
    def words(text: str) -> frozenset:
        plain = re.sub(r"</?\w+>", " ", unicodedata.normalize("NFKC", text).casefold())
        pieces = re.findall(r"\w+|[^\w\s]", plain)
        return frozenset(tuple(pieces[i : i + n]) for i in range(max(1, len(pieces) - n + 1)))

    mine, theirs = gram_sets(texts, n=n, written=_written), [words(t) for t in texts]
    assert [len(grams) for grams in mine] == [len(w) for w in theirs]
    for a, x in zip(mine, theirs, strict=True):
        for b, y in zip(mine, theirs, strict=True):
            assert len(np.intersect1d(a, b)) == len(x & y)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_noise_rate_of_pairs_is_that_of_both_orders(right):
    assert noise_rate_of_pairs(np.array(right)) == noise_rate(*symmetric(np.array(right)))


def test_ranks_are_the_places_of_sorted_names():
    names = ["b", "", "a\x00c", "b", "é" * 3000]
    assert ranks(names).tolist() == np.unique(np.array(names), return_inverse=True)[1].tolist() == [2, 0, 1, 2, 3]


@pytest.mark.parametrize("blind", [False, True])
def test_the_table_of_differences_is_that_of_the_features(blind, monkeypatch):
    monkeypatch.setattr("synth.preferences.cleaners._features.BLOCK", 3)
    rng, rng_ = Random(4), np.random.default_rng(4)
    sides = [
        " ".join(rng.choices("abc12", k=rng.randrange(5))) + rng.choice(["", "<answer>b</answer>", "**"])
        for _ in range(80)
    ]
    some = [pair(rng.choice(["Sort 3 1 b", "Who is a?", "Add 2 and 1"]), *sides[i : i + 2]) for i in range(0, 80, 2)]
    extra = style if blind else lambda text: {}
    rows = [features(p.prompt, t) | extra(t) for p in some for t in (p.chosen, p.rejected)]
    names = DictVectorizer(sparse=False)
    table = names.fit_transform(rows)
    known = Known()
    for _ in range(2):  # the second from what the first has read
        mine = differences(some, style if blind else None, known)
        assert mine.names == list(names.feature_names_) and np.array_equal(mine.table(), table[0::2] - table[1::2])
        rows = np.array([1, 3, 4, 7, 20, 39])  # multiplied block by block, as tables too large to be held are
        part, w, r = mine.part(rows), rng_.normal(size=len(mine.names)), rng_.normal(size=len(rows))
        np.testing.assert_allclose(part @ w, mine.table()[rows] @ w, atol=1e-12)
        np.testing.assert_allclose(part.T @ r, mine.table()[rows].T @ r, atol=1e-12)
        assert np.array_equal(np.concatenate(list(part.tables())), mine.table()[rows])
    assert len(known) == len({(p.prompt, p.chosen, p.rejected) for p in some})


@pytest.mark.parametrize("c", [0.1, 1.0, 10.0])
def test_the_fit_of_the_labels_is_sklearns_at_its_optimum(c):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 6)) * [1, 50, 0.01, 3, 1, 0]  # features of very different sizes, one without values
    x *= np.where(x @ [1, 0.02, 5, 0, -1, 0] + rng.logistic(size=400) > 0, 1, -1)[:, None]
    peer = LogisticRegression(C=c, fit_intercept=False, tol=1e-10, max_iter=10_000, solver="newton-cg")
    peer.fit(np.concatenate([x, -x]), np.repeat([1, 0], len(x)))
    for table in (x, csr_array(x)):
        np.testing.assert_allclose(table @ fitted(table, c), x @ peer.coef_[0], atol=2e-3)


def test_columns_that_cleaners_need_are_no_observations_of_rollouts():
    assert "votes" in bind("synth.preferences.cleaners", {"piece": "annotators"}).needs
    assert bind("synth.preferences.cleaners", {"piece": "annotators"}).observations == ()


@given(st.text(st.sampled_from("aZ_9-+*/= \n.,<\x1f\t\x00é½")))
def test_words_and_signs_are_those_that_the_expression_finds(text):
    assert list(tokens(text).elements()) == list(Counter(re.findall(r"\w+|[-+*/=]", text.lower())).elements())
