"""The search tool against a naive BM25 in plain Python, its ties, and its silence."""

import math
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import bm25s
import numpy as np
import pyarrow as pa
import pytest

from synth.knowledge.kb import Passage, passages
from synth.knowledge.world import world
from synth.search import bm25
from synth.search.bm25 import Ranking, _numbered
from tasks.knowledge.search_tool import NOTHING, Search, words


def passage(i: int, title: str, text: str) -> Passage:
    return Passage(id=str(i), entity=title, title=title, text=text, facts=())


def naive(documents: list[list[str]], query: list[str], k1: float = 1.5, b: float = 0.75) -> list[float]:
    n, mean = len(documents), sum(map(len, documents)) / len(documents)
    out = []
    for d in documents:
        tf, total = Counter(d), 0.0
        for t in query:
            df = sum(t in other for other in documents)
            if df and tf[t]:
                total += math.log(1 + (n - df + 0.5) / (df + 0.5)) * tf[t] / (tf[t] + k1 * (1 - b + b * len(d) / mean))
        out.append(total)
    return out


@pytest.fixture(scope="module")
def some() -> list[Passage]:
    return passages(world(countries=6, seed=1))


def test_scores_equal_the_formula(some: list[Passage]) -> None:
    search, rng = Search(some), random.Random(0)
    documents = [words(f"{p.title} {p.text}") for p in some]
    vocabulary = sorted({w for d in documents for w in d}) + ["unheard"]
    for _ in range(40):
        query = rng.choices(vocabulary, k=rng.randint(1, 6))
        np.testing.assert_allclose(search.scores(" ".join(query)), naive(documents, query), rtol=0, atol=1e-12)


def test_the_matrix_is_that_of_bm25s_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "_CHUNK", 7)  # texts of many chunks
    monkeypatch.setattr(bm25, "_BLOCK", 40)  # words of many blocks
    rng = random.Random(0)
    for n_words in (1, 2, 30):
        texts = [[rng.randrange(n_words) for _ in range(rng.randrange(9))] for _ in range(100)] + [[n_words - 1]]
        theirs = bm25s.BM25(method="lucene", k1=1.5, b=0.75, dtype="float64")
        vocabulary = {str(i): i for i in range(n_words)}
        theirs.index(SimpleNamespace(ids=texts, vocab=vocabulary), show_progress=False)
        sizes = np.array([len(text) for text in texts], np.int32)
        blocks = bm25.matrix(np.array([w for text in texts for w in text], np.int32), sizes, n_words, tmp_path)
        scores, of, frequency = (np.concatenate(x) for x in zip(*blocks, strict=True))
        ours = scores, of, np.concatenate([[0], np.cumsum(frequency)])
        for name, array in zip(("data", "indices", "indptr"), ours, strict=True):
            assert array.dtype == theirs.scores[name].dtype and np.array_equal(array, theirs.scores[name]), name


def test_a_ranking_written_as_it_is_made_is_the_saved_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the red fox", "a red hat, the hat", "é", "", "the"] * 30 + ["rare"]
    Ranking.of(texts).save(tmp_path / "saved")
    monkeypatch.setattr(bm25, "_BLOCK", 40)
    written = Ranking.of(iter(texts), tmp_path / "made")
    names = {p.name for p in (tmp_path / "saved").iterdir()}
    assert names == {p.name for p in (tmp_path / "made").iterdir()} and len(names) >= 5
    for name in names:
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "made" / name).read_bytes(), name
    assert written.top("red hat", 3) == Ranking.of(texts).top("red hat", 3) and len(written) == len(texts)


def test_the_best_come_first_and_ties_keep_the_order_of_the_table(some: list[Passage]) -> None:
    for k in (1, 3, 7):
        search = Search(some, k=k)
        for query in ("capital of", "the", some[5].title, f"mayor of {some[9].title}"):
            scores = np.round(search.scores(query), 9)
            order = sorted(np.nonzero(scores)[0], key=lambda i: (-scores[i], i))[:k]
            assert [p.id for p in search.hits(query)] == [some[i].id for i in order]


def test_texts_without_a_rare_word_rank_as_if_all_were_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rare words leave fewer than k texts, or texts that common words alone can beat; equal texts are among both."""
    rng = random.Random(0)
    vocabulary = [chr(97 + i) for i in range(20)]
    monkeypatch.setattr(bm25, "_FEW", 0)
    for common in (1, 4, 12, 1000):
        monkeypatch.setattr(bm25, "_COMMON", common)
        weights = [2.0 ** -rng.randrange(6) for _ in vocabulary]
        ranking = Ranking.of([" ".join(rng.choices(vocabulary, weights, k=rng.randrange(7))) for _ in range(90)])
        for _ in range(300):
            query, k = " ".join(rng.choices([*vocabulary, "unheard"], k=rng.randint(1, 5))), rng.randint(1, 100)
            scores = np.round(ranking.scores(query), 9)
            order = sorted(np.nonzero(scores)[0], key=lambda i: (-scores[i], i))[:k]
            assert ranking.top(query, k) == tuple(order), (query, k, common)


def test_equal_passages_in_order() -> None:
    search = Search([passage(i, "A", f"red {w}") for i, w in enumerate(("one", "two", "six", "ten"))])
    assert search("red") == "red one\nred two\nred six"


def test_nothing_found_and_only_what_matches() -> None:
    search = Search([passage(0, "Norvia", "The capital of Norvia is Zelton."), passage(1, "Pol", "Pol is cold.")])
    assert search("capital of Norvia") == search("OF capital, norvia!") == "The capital of Norvia is Zelton."
    assert search("zzz") == search("") == search("?!") == NOTHING
    assert search("norvi") == NOTHING  # no stemming, no prefixes
    assert search("unknown pol") == "Pol is cold."


def test_words_of_other_scripts() -> None:
    assert words("N'Djamena: Åland—Çeşme 1,234") == ["n", "djamena", "åland", "çeşme", "1", "234"]


def test_answers_do_not_depend_on_the_past(some: list[Passage]) -> None:
    used, queries = Search(some, cache=4), [f"{w} of {p.title}" for p in some for w in ("capital", "mayor")]
    first = [used(q) for q in queries]
    assert [used(q) for q in reversed(queries)] == first[::-1] == [Search(some)(q) for q in reversed(queries)]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="no passages"):
        Search([])
    with pytest.raises(ValueError, match="at least 1"):
        Search([passage(0, "a", "b")], k=0)


def test_texts_are_split_together_as_each_alone() -> None:
    """`Ranking.of` splits many texts by Arrow; `words` says what is right."""
    rng = random.Random(3)
    letters = [*map(chr, range(128)), *"éÉßİıΣςーﬁⅧ\u00a0\u2028\u3000\u0301\x85\ud800🙂", "Ab", " ", "_9"]
    texts = ["".join(rng.choices(letters, k=rng.randrange(12))) for _ in range(3000)] + ["", " ", "a", "É", "_"]
    for some in (texts, [], ["", "?!"], ["a b"]):
        valid = [t.encode("utf-8", "ignore").decode() for t in some]
        for given, alone in ((some, some), (pa.array(valid, pa.large_string()), valid)):
            names, codes, sizes = _numbered(given)
            own = iter([names[n].as_py() for n in codes.tolist()])
            assert [[next(own) for _ in range(size)] for size in sizes.tolist()] == [words(t) for t in alone]
            assert next(own, None) is None
