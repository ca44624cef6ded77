"""Gram hashes and MinHash against plain Python and datasketch; the audit on planted faults, in pieces of any size."""

import csv
import json
from random import Random

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.cli import main
from synth.preferences.cleaners import _grams
from synth.preferences.cleaners._grams import bands, densified, gram_sets, hashed, jaccard
from synth.preferences.imported import Reader
from synth.types import Message, PreferencePair
from tasks.core.errors import UserError
from tasks.rows import audit as module
from tasks.rows.audit import Table, _candidates, _gathered, _rows, audit, cycles


def words(rng, n, vocabulary=400):
    return [
        "w" + "".join(chr(97 + int(d)) for d in str(rng.randrange(vocabulary))) for _ in range(n)
    ]  # no digits: numbers must agree


def plain_sets(text):
    w = text.split()
    return set(zip(w, w[1:], strict=False)) or ({(w[0],)} if w else set())


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", "cat", "dog", "x1"]), max_size=12).map(" ".join), min_size=2, max_size=6
    )
)
@settings(max_examples=50, deadline=None)
def test_jaccard_of_hashes_is_that_of_words(texts):
    sets, plain = gram_sets(texts), [plain_sets(t) for t in texts]
    for i in range(len(texts)):
        for j in range(len(texts)):
            union = plain[i] | plain[j]
            assert jaccard(sets[i], sets[j]) == (len(plain[i] & plain[j]) / len(union) if union else 1.0)


def test_text_and_number_hashes():
    texts = [
        "The cat, 12 of 3.",
        "the  CAT ,\t12 of 3 .",
        "the cat of 12, 3.",
        "the cat, 12 of 4.",
        "",
        " \n",
        "Ça VA",
        "ça va",
    ]
    h = hashed(texts)
    assert (
        h.text[0] == h.text[1]
        and len(set(h.text[[0, 2, 3]].tolist())) == 3
        and h.text[4] == h.text[5] == 0
        and h.text[6] == h.text[7]
    )
    assert h.numbers[0] == h.numbers[2] != h.numbers[3] and h.numbers[6] == 0
    assert h.words.tolist() == [7, 7, 7, 7, 0, 0, 2, 2]


@pytest.mark.parametrize("block", [64, 1 << 18])
def test_blocks_do_not_matter(monkeypatch, block):
    rng = Random(0)
    texts = [" ".join(words(rng, rng.randrange(60))) for _ in range(50)] + ["x" * 5000]
    whole = hashed(texts)
    monkeypatch.setattr(_grams, "BLOCK", block)
    monkeypatch.setattr(_grams, "_cache", {})
    again = hashed(texts)
    assert all((getattr(whole, f) == getattr(again, f)).all() for f in ("bins", "text", "numbers", "words"))
    alone = [hashed([t]) for t in texts]
    assert (np.concatenate([a.bins for a in alone]) == whole.bins).all()


def test_minhash_estimates_as_well_as_datasketch():
    datasketch = pytest.importorskip(
        "datasketch", reason="datasketch, the oracle, is not installed: pip install datasketch"
    )
    rng = Random(1)
    left = [words(rng, 150) for _ in range(300)]
    right = [
        [w if rng.random() > share else f"w{rng.randrange(400)}" for w in t]
        for t in left
        for share in [rng.choice((0.01, 0.05, 0.2))]
    ]
    texts = [" ".join(t) for t in left + right]
    sets = [{f"{a} {b}".encode() for a, b in zip(w, w[1:], strict=False)} for w in left + right]
    theirs = datasketch.MinHash.bulk(sets, num_perm=64)
    exact = np.array([len(a & b) / len(a | b) for a, b in zip(sets[:300], sets[300:], strict=True)])
    peer = np.array([a.jaccard(b) for a, b in zip(theirs[:300], theirs[300:], strict=True)])
    bins = densified(hashed(texts).bins)
    mine = (bins[:300] == bins[300:]).mean(axis=1)
    assert abs((mine - exact).mean()) < 0.01 and (mine - exact).std() < 1.1 * (peer - exact).std()
    near = exact >= 0.7
    keys = bands(bins)
    assert near.sum() > 100 and (keys[:300] == keys[300:]).any(axis=1)[near].mean() > 0.97


def test_short_texts_meet_when_they_are_the_same():
    bins = densified(hashed(["yes", "yes", "no", "yes sir", ""]).bins)
    assert (bins[0] == bins[1]).all() and not (bins[0] == bins[2]).any() and (bins[4] == _grams.EMPTY).all()


def pair(prompt, chosen, rejected):
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def write(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_every_fault_is_named_once_with_its_other_line(tmp_path):
    rng = Random(3)
    a, b, c, d = (" ".join(words(rng, 60)) for _ in range(4))
    near = a.replace(a.split()[3], "elsewhere", 1)
    rows = [
        pair("one?", a, b),  # 1
        pair("ONE ?", a.upper(), b),  # 2 the same words as 1
        pair("one?", b, a),  # 3 swaps 1
        pair("two words here", a, c),  # 4
        pair("two words here", near, c),  # 5 nearly 4
        pair("two words here", c, near),  # 6 swaps 5, nearly swaps 4
        pair("three", a, b),
        pair("three", b, c),
        pair("three", c, a),
        pair("three", c, d),  # 7 8 9 in a circle, 10 beside it
        pair("in 1999 he said", a, d),
        pair("in 1998 he said", a, d),  # 11, 12: alike but for a number
    ]
    faults = {
        (line, code): other
        for line, code, other in audit(write(tmp_path / "x.jsonl", rows), Reader(name="x"), processes=1).faults
    }
    assert faults.pop((2, "exact_duplicate")) == 1 and faults.pop((5, "near_duplicate")) == 4
    assert {(i, "contradiction"): faults.pop((i, "contradiction")) for i in (1, 2, 3, 5, 6)} == {
        (1, "contradiction"): 3,
        (2, "contradiction"): 3,
        (3, "contradiction"): 1,
        (5, "contradiction"): 6,
        (6, "contradiction"): 5,
    }
    on = {line for line, code in faults if code == "on_a_cycle"}
    assert on == {1, 2, 3, 5, 6, 7, 8, 9}
    assert {k: v for k, v in faults.items() if k[1] != "on_a_cycle"} == {
        (4, "near_contradiction"): 6,
        (6, "near_contradiction"): 4,
    }


@pytest.mark.parametrize("piece", [300, 1000, 8 << 20])
def test_pieces_and_processes_do_not_matter(tmp_path, monkeypatch, piece):
    rng = Random(4)
    pairs = [pair(" ".join(words(rng, 5)), " ".join(words(rng, 20)), " ".join(words(rng, 20))) for _ in range(60)]
    rows = (
        pairs + [pairs[i] for i in (3, 7, 50)] + [pair(m["prompt"], m["rejected"], m["chosen"]) for m in pairs[10:14]]
    )
    path = write(tmp_path / "x.jsonl", rows)
    path.write_bytes(path.read_bytes() + b'\n[1]\n{"prompt":\n')
    whole = audit(path, Reader(name="x"), processes=1)
    monkeypatch.setattr(module, "PIECE", piece)
    monkeypatch.setattr(module.multiprocessing, "get_context", lambda kind: InProcess)
    again = audit(path, Reader(name="x"), processes=1)
    assert again == whole and whole.card["pairs"] == 67 and whole.card["lines"] == 70
    assert [(q.id, q.reason) for q in whole.quarantined] == [("line 69", "not_an_object"), ("line 70", "not_json")]
    assert [f for f in whole.faults if f[1] == "exact_duplicate"] == [
        (61, "exact_duplicate", 4),
        (62, "exact_duplicate", 8),
        (63, "exact_duplicate", 51),
    ]


class InProcess:
    """A pool of this process, so that PIECE can be changed."""

    def __init__(self, *_):
        pass

    Pool = classmethod(lambda cls, *_: cls())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def imap(self, f, jobs):
        return map(f, jobs)


def test_ten_thousand_pairs_of_one_prompt(tmp_path):
    rng = Random(5)
    long = " ".join(words(rng, 80))
    rows = [pair(long, f"answer {i}", f"reply {i + 1}") for i in range(10_000)] + [pair(long, "answer 77", "reply 78")]
    audited = audit(write(tmp_path / "x.jsonl", rows), Reader(name="x"), processes=1)
    assert audited.card["prompts"] == 1 and audited.faults == [(10_001, "exact_duplicate", 78)]


def test_cycles_are_those_of_the_cleaner():
    from synth.preferences.cleaners.intransitive import intransitive

    rng = Random(6)
    pairs = []
    for i in range(200):
        a, b = rng.sample("abcdef", 2)
        prompt = (Message(role="user", content=f"p{rng.randrange(30)}"),)
        pairs.append(PreferencePair(id=str(i), prompt=prompt, chosen=a, rejected=b, source="t", split="train"))
    text = [
        hashed(t).text
        for t in ([p.prompt[0].content for p in pairs], [p.chosen for p in pairs], [p.rejected for p in pairs])
    ]
    assert cycles(*text).tolist() == [d.action == "ask" for d in intransitive(pairs)]


def test_the_command(tmp_path, capsys):
    rows = [pair("q one", "a b c", "d e f"), pair("q one", "a b c", "d e f")]
    assert (
        main(["audit", str(write(tmp_path / "x.jsonl", rows)), "--out", str(tmp_path / "out"), "--processes", "1"]) == 0
    )
    assert "exact_duplicate 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "faults.jsonl").read_text()) == {
        "line": 2,
        "reason": "exact_duplicate",
        "other_line": 1,
    }


def as_csv(folder, rows):
    with (folder / "x.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question", "better", "worse"])
        writer.writeheader()
        writer.writerows(dict(zip(writer.fieldnames, r.values(), strict=True)) for r in rows)
    return folder / "x.csv"


def as_parquet(folder, rows):
    Dataset.from_list(rows).to_parquet(folder / "x.parquet")
    return folder / "x.parquet"


def as_folder(folder, rows):
    (folder / "x" / "a").mkdir(parents=True)
    (folder / "x" / "b").mkdir()
    write(folder / "x" / "a" / "rows.jsonl", rows[:2])
    path = write(folder / "x" / "b" / "rows.jsonl", rows[2:])
    path.write_text("\n{broken\n" + path.read_text())
    return folder / "x"


@pytest.mark.parametrize(
    ("write_rows", "columns", "numbers"),
    [
        (as_csv, "prompt=question,chosen=better,rejected=worse", (3, 1)),
        (as_parquet, "", (3, 1)),
        (as_folder, "", (3, 1)),  # the third line of the second file copies the first line of the first
    ],
)
def test_every_layout_that_clean_reads_is_audited_by_its_own_numbers(tmp_path, capsys, write_rows, columns, numbers):
    rows = [pair("q one", "a b c", "d e f"), pair("q two", "same", "same"), pair("q one", "a b c", "d e f")]
    path, out = write_rows(tmp_path, rows), tmp_path / "out"
    options = ["--columns", columns] if columns else []
    assert main(["audit", str(path), "--out", str(out), "--processes", "1", *options]) == 0
    assert "exact_duplicate 1" in capsys.readouterr().out
    fault = json.loads((out / "faults.jsonl").read_text())
    assert (fault["line"], fault["other_line"], fault["reason"]) == (*numbers, "exact_duplicate")
    assert fault["file"] == fault["other_file"] == (path.name if path.is_file() else "rows.jsonl")
    aside = [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]
    same = "rows.jsonl line 2" if path.is_dir() else f"{path.name} row 2"
    broken = [("rows.jsonl line 2", "not_json")] if path.is_dir() else []
    assert [(q["id"], q["reason"]) for q in aside] == [*broken, (same, "identical_sides")]
    assert sum(json.loads((out / "card.json").read_text())["quarantined"].values()) == len(aside)


def chat(*contents):
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


def talk(*contents):
    return "".join(f"\n\n{('Human', 'Assistant')[i % 2]}: {text}" for i, text in enumerate(contents))


# layout -> the row that says of `question`: `good` is better than `bad`
LAYOUTS = {
    "texts": lambda question, good, bad: {"prompt": question, "chosen": good, "rejected": bad},
    "messages": lambda question, good, bad: {
        **{"prompt": chat(question), "chosen": chat("", good)[1:], "rejected": chat("", bad)[1:]}
    },
    "whole conversations": lambda question, good, bad: {
        "chosen": chat("hi", "hello", question, good),
        "rejected": chat("hi", "hello", question, bad),
    },
    "ShareGPT's names": lambda question, good, bad: {
        "conversations": [{"from": "human", "value": question}],
        "chosen": {"from": "gpt", "value": good},
        "rejected": {"from": "gpt", "value": bad},
    },
    "transcripts": lambda question, good, bad: {"chosen": talk(question, good), "rejected": talk(question, bad)},
    "ratings": lambda question, good, bad: {
        "prompt": question,
        "responses": [bad, good, "so so"],
        "ratings": [1, 5, 3],
    },
    "answers with a rating each": lambda question, good, bad: {
        "instruction": question,
        "completions": [{"response": bad, "rating": "2"}, {"response": good, "rating": "4"}],
    },
    "sides": lambda question, good, bad: {
        **{"prompt": question, "response_a": bad, "response_b": good, "preference": "b"}
    },
    "sides and a strength": lambda question, good, bad: {
        **{"prompt": question, "response_1": bad, "response_2": good, "preference_strength": 2}
    },
    "votes": lambda question, good, bad: {
        **{"prompt": question, "response_a": good, "response_b": bad, "votes": {"ann": "a", "bob": "a", "cy": "b"}}
    },
    "a row for each annotator": lambda question, good, bad: {
        **{"prompt": question, "response_a": good, "response_b": bad, "winner": "a", "annotator": "ann"}
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_clean_calls_a_pair_audit_does_too(tmp_path, capsys, layout):
    """Six pairs, one of them there twice, and a row whose two sides are the same."""
    pairs = [(f"How far is town {i}?", f"It is {i} miles away.", f"I do not know of town {i}.") for i in range(6)]
    again = [] if layout == "a row for each annotator" else [pairs[2]]  # there a second verdict is no second pair
    rows = [LAYOUTS[layout](*row) for row in [*pairs, *again, ("And this?", "the same", "the same")]]
    path = write(tmp_path / "x.jsonl", rows)
    assert main(["audit", str(path), "--out", str(tmp_path / "audited"), "--processes", "1"]) == 0
    assert main(["clean", str(path), "--out", str(tmp_path / "cleaned")]) == 0
    audited, cleaned = (json.loads((tmp_path / name / "card.json").read_text()) for name in ("audited", "cleaned"))
    assert audited["pairs"] == cleaned["pairs"]["read"] == len(pairs) + len(again)
    assert audited["quarantined"] == cleaned["quarantined"] == {"identical_sides": 1}
    assert audited["faults"].get("exact_duplicate", 0) == cleaned["pairs"]["removed"] == len(again)
    assert "Traceback" not in capsys.readouterr().err


def test_clean_and_audit_read_by_the_same_options(tmp_path, capsys):
    path = str(as_csv(tmp_path, [pair("q one", "a b c", "d e f")]))
    for command in ("audit", "clean"):
        assert main([command, path, "--out", str(tmp_path / "out"), "--columns", "prompt"]) != 0
        assert "write OURS=YOURS" in capsys.readouterr().err
        assert main([command, str(tmp_path / "none.csv"), "--out", str(tmp_path / "out")]) != 0
        assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("x.jsonl", '{"good": 1, "bad": 2}\n', "has the columns good, bad, which make no pairs"),
        ("x.jsonl", "[1]\n", "has no pair: 1 not_an_object; the first: line 1: "),
        ("x.jsonl", "", "has no pair: it is empty"),
    ],
)
def test_what_cannot_be_audited_is_a_sentence(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=sentence):
        audit(tmp_path / name, Reader(name=name), processes=1)


def test_how_many_couples_are_read_at_once_changes_no_fault(tmp_path, monkeypatch):
    """Rows that an earlier part found to be copies are not compared again, and nothing else is left out."""
    rng, rows = Random(3), []
    for i in range(300):
        row = (
            rng.choice(rows)
            if rows and rng.random() < 0.5
            else {k: " ".join(words(rng, 30)) for k in ("prompt", "chosen", "rejected")}
        )
        row = {k: " ".join(w if rng.random() > 0.02 else "other" for w in v.split()) for k, v in row.items()}
        rows.append(row if i % 9 else {**row, "chosen": row["rejected"], "rejected": row["chosen"]})
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    whole = audit(path, processes=1)
    assert {"near_duplicate", "near_contradiction"} <= set(whole.card["faults"])
    for n in (1, 7):
        monkeypatch.setattr(module, "COMPARED", n)
        assert audit(path, processes=1).faults == whole.faults


def test_prompts_that_are_there_once_go_in_no_circle():
    rng = np.random.default_rng(0)
    prompt, chosen, rejected = (rng.integers(0, k, 400).astype(np.uint64) for k in (150, 4, 4))
    alone = np.array([(prompt == p).sum() == 1 for p in prompt])
    in_circle = cycles(prompt, chosen, rejected)
    assert alone.any() and in_circle.any() and not in_circle[alone].any()
    assert (cycles(prompt[~alone], chosen[~alone], rejected[~alone]) == in_circle[~alone]).all()


def test_couples_that_differ_in_numbers_are_not_kept(tmp_path, monkeypatch):
    """Rows of one form with other numbers share every band: fifty couples a row, of which none is a candidate."""
    n, long = 400, " ".join(words(Random(8), 60))
    pairs = [
        PreferencePair(
            id=str(i),
            prompt=(Message(role="user", content=f"{long} order {i}"),),
            chosen=f"{long} costs {i}",
            rejected=f"{long} costs {i + 1}",
            source="t",
            split="train",
        )
        for i in range(n)
    ]
    monkeypatch.setattr(module, "GATHERED", 5000)
    table = Table(tmp_path, [_rows(pairs, list(range(n)), list(range(n)))])
    looked_at, sizes = list[tuple[int, int]](), list[int]()
    estimated = module._estimated

    def counted(rows, a, b, *more):
        sizes.append(len(a))
        looked_at.extend(zip(a.tolist(), b.tolist(), strict=True))
        return estimated(rows, a, b, *more)

    monkeypatch.setattr(module, "_estimated", counted)
    later, earlier = _candidates(table, np.arange(n), 0.5)
    assert len(later) == len(earlier) == 0
    assert len(looked_at) > 20 * n and len(looked_at) == len(set(looked_at)), "each couple once, whatever it shares"
    assert len(sizes) > 2 and max(sizes) < 2 * module.GATHERED, "some are in memory at a time"


def test_couples_are_gathered_in_order_and_once(tmp_path, monkeypatch):
    rng, n = np.random.default_rng(0), 300
    runs, every, at = [], [], 0
    with (tmp_path / "x").open("w+b") as file:
        for size in (500, 0, 1, 700):
            codes = np.sort(rng.integers(n, size=size) * n + rng.integers(n, size=size))
            file.write(codes)
            runs.append((at, at := at + size))
            every.append(codes)
        file.flush()
        monkeypatch.setattr(module, "GATHERED", 100)
        parts = list(_gathered(file, runs, n))
    assert len(parts) > 5 and max(map(len, parts)) < 200
    assert np.concatenate(parts).tolist() == np.unique(np.concatenate(every)).tolist()
