"""Cleaners by rule and by count: each rule with a text that breaks it and one that only looks like it; numbers by
hand."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.preferences.cleaners._length import longer_wins
from synth.preferences.cleaners._noise import estimate, wilson
from synth.preferences.cleaners._overlap import Protected
from synth.preferences.cleaners.arithmetic import _STATED, arithmetic, stated
from synth.preferences.cleaners.identical_sides import _fault
from synth.preferences.cleaners.length_balance import length_balance
from synth.preferences.cleaners.master_keys import KEYS, _plain, is_key, master_keys
from synth.preferences.cleaners.poisoning import poisoning
from synth.preferences.cleaners.policy import policy
from synth.preferences.cleaners.text_rules import _BROKEN, _broken, cut, personal, script, text_rules
from synth.types import Decision, Message, PreferencePair


def pair(i=0, chosen="a good answer", rejected="a bad one", prompt="Why?", **rest):
    return PreferencePair(
        id=f"{i:04d}",
        prompt=(Message(role="user", content=prompt),),
        chosen=chosen,
        rejected=rejected,
        source="t",
        split="train",
        **rest,
    )


LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty and"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ("encoding", {"chosen": "the cafÃ© is open"}, {"chosen": "the café is open, così fan tutte"}),
        ("encoding", {"rejected": "it is � broken"}, {"rejected": "tabs\tand\nlines"}),
        ("pii", {"chosen": "Write to ann.lee@acme.org"}, {"chosen": "Write @ann, ann at example or you@example.org."}),
        (
            "pii",
            {"prompt": "My card is 4111 1111 1111 1111"},
            {"prompt": "The number is 4111 1111 1111 1112, and pi 3.14159265358979"},
        ),
        ("pii", {"chosen": "IBAN DE89 3704 0044 0532 0130 00"}, {"chosen": "IBAN DE89 3704 0044 0532 0130 01"}),
        ("pii", {"chosen": "Call +49 30 901820 now"}, {"chosen": "x +49 = 30, so 901820 + 12"}),
        ("refusal", {"chosen": "I'm sorry, but I cannot help with that."}, {"chosen": "I can help with that."}),
        (
            "refusal",
            {"chosen": "I can't provide this."},
            {"chosen": "I can't provide this.", "rejected": "I cannot help."},
        ),
        ("truncated", {"chosen": LONG, "rejected": "It ends."}, {"chosen": f"{LONG} more.", "rejected": "It ends."}),
        (
            "truncated",
            {"chosen": "```python\nprint(1)", "rejected": "It ends."},
            {"chosen": "```python\nprint(1)\n```"},
        ),
        (
            "language",
            {
                "prompt": "Why is the sky blue?",
                "chosen": "因为空气散射蓝光比红光更多一些",
                "rejected": "Because of air.",
            },
            {
                "prompt": "Why is the sky blue?",
                "chosen": "Because of air, it is.",
                "rejected": "因为空气散射蓝光比红光更多一些",
            },
        ),
    ],
)
def test_each_rule(rule, bad, good):
    assert [(d.action == "keep", d.reason) for d in text_rules([pair(**bad), pair(**good)], rules=(rule,))] == [
        (False, rule),
        (True, "reads_well"),
    ]
    assert text_rules([pair(**bad)])[0].reason == rule, "no other rule comes first"


def test_an_unknown_rule_is_a_sentence():
    with pytest.raises(ValueError, match="no rule 'pi': it has encoding, pii"):
        text_rules([], rules=("pi",))


@given(st.text(st.sampled_from("aZ 0123456789DE-+@.,(\n"), max_size=60))
def test_texts_of_ascii_are_read_as_others_are(text):
    for seen in (text, f"card 4111 1111 1111 1111 {text}", f"IBAN DE89 3704 0044 0532 0130 00 {text}"):
        assert personal(seen) == personal(f"{seen} …") and script(seen) == script(f"{seen}…")


def test_kinds_of_personal_data_scripts_and_cuts():
    assert [personal(t) for t in ("a@b.org", "4111-1111-1111-1111", "0000 0000 0000 0000", "+1 (212) 555 0100")] == [
        "mail",
        "card",
        "",
        "phone",
    ]
    assert [script(t) for t in ("Hello, world, hello", "Москва слезам не верит", "short")] == ["LATIN", "CYRILLIC", ""]
    assert [cut(t) for t in (LONG, f"{LONG}.", "Paris", f"{LONG} 。", f"{LONG} 🎉")] == [
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "text", ["", " ", "...", "Solution", "solution :", "Let's think step by step", "THOUGHT PROCESS:", "解：", "?!"]
)
def test_master_keys_are_known(text):
    assert is_key(text) and master_keys([pair(chosen=text)])[0].action == "remove"
    assert master_keys([pair(rejected=text)])[0].action == "ask"


@pytest.mark.parametrize("text", ["4", "Solution: 4", "Answer: no", "是", "Let's solve it: x = 2"])
def test_an_answer_is_no_key(text):
    assert not is_key(text) and master_keys([pair(chosen=text)])[0].action == "keep"


def test_length_balance_by_hand():
    """Differences 1, 2, -2, 3 make one bin: three longer, one shorter, so the two largest surpluses of the longer
    go."""
    decisions = length_balance([pair(i, "x" * (10 + d), "y" * 10) for i, d in enumerate((1, 2, -2, 3, 0))], bins=1)
    assert [(d.action, d.reason, d.score) for d in decisions] == [
        ("keep", "balanced", 1),
        ("remove", "surplus_longer", 2),
        ("keep", "balanced", -2),
        ("remove", "surplus_longer", 3),
        ("keep", "balanced", 0),
    ]


def test_after_balance_length_tells_nothing():
    rng = np.random.default_rng(0)
    lengths = [(int(a), int(b)) for a, b in rng.integers(1, 200, (400, 2))]
    pairs = [
        pair(i, "x" * max(a, b), "y" * min(a, b)) if rng.random() < 0.8 else pair(i, "x" * a, "y" * b)
        for i, (a, b) in enumerate(lengths)
    ]
    before = longer_wins(np.array([len(p.chosen) - len(p.rejected) for p in pairs]))
    kept = [p for p, d in zip(pairs, length_balance(pairs), strict=True) if d.action == "keep"]
    after = longer_wins(np.array([len(p.chosen) - len(p.rejected) for p in kept]))
    assert before["share"] > 0.85 and after["share"] == 0.5 and len(kept) > 40


def test_longer_wins_counts():
    counts = longer_wins(np.array([1, 2, -3, 0, 4]), bins=2)
    assert (counts["n"], counts["share"]) == (4, 0.75) and sum(r["n"] for r in counts["by_size"]) == 4
    assert longer_wins(np.zeros(3))["share"] is None and longer_wins(np.zeros(0))["by_size"] == []


def test_wilson_by_hand():
    # n = 10, k = 2, z = 1.959964: centre (2 + 1.920729) / 13.841459 = 0.283260, spread 1.959964 / 13.841459 * sqrt(1.6
    # + 0.960365)
    low, high = wilson(2, 10)
    assert (low, high) == (
        pytest.approx(0.283260 - 0.141600 * 1.600114, abs=1e-5),
        pytest.approx(0.283260 + 0.141600 * 1.600114, abs=1e-5),
    )
    assert wilson(0, 5)[0] == 0.0 and wilson(5, 5)[1] == 1.0


def test_noise_with_and_without_anchors():
    rng = np.random.default_rng(1)
    truth = rng.random(600) < 0.8
    right = np.clip(np.where(truth, 0.8, 0.2) + rng.normal(0, 0.05, 600), 0.01, 0.99)
    groups = [str(i // 2) for i in range(600)]
    none = estimate(right, groups, np.zeros(600))
    assert (
        none["low"] < 0.2 < none["high"]
        and none["high"] - none["low"] < 0.1
        and none["rate"] == pytest.approx(1 - truth.mean(), abs=0.02)
    )
    assert not none["identifiable"] and none["note"].startswith("no anchors: not identifiable")
    anchors = np.where(np.arange(600) < 40, np.where(truth, 1, -1), 0)
    some = estimate(right, groups, anchors)
    assert (
        some["identifiable"]
        and some["rate"] == (~truth[:40]).mean()
        and (some["low"], some["high"]) == wilson(int((~truth[:40]).sum()), 40)
    )
    # A person found more wrong labels among those that were asked about than the estimate believes in.
    estimated = estimate(right, groups, np.zeros(600), proven=240)
    assert estimated["low"] == estimated["rate"] == estimated["high"] == 0.4 and estimated["note"].startswith(
        "240 of 600 labels are proven"
    )
    assert estimate(right, groups, np.zeros(600), proven=3) == none, "fewer than it believes in change nothing"
    # A malicious majority: all labels turned around. Without anchors the estimate stays what it was, with them it is
    # told.
    turned = estimate(right, groups, -anchors)
    assert estimate(right, groups, np.zeros(600))["rate"] == none["rate"] and turned["rate"] == pytest.approx(
        1 - some["rate"]
    )


def test_poisoning_asks_where_only_suspects_decide():
    """Six honest annotators of accuracy 0.9 and two copies of one account that always votes for the second side."""
    rng = np.random.default_rng(2)
    pairs = []
    for i in range(200):
        honest = {
            f"h{j}": int(rng.choice([1, -1], p=[0.9, 0.1])) for j in rng.choice(6, 1 if i < 40 else 4, replace=False)
        }
        pairs.append(pair(i, columns={"votes": honest | ({"p": -1, "q": -1} if i < 60 else {})}))
    decisions = poisoning(pairs)
    questioned = [i for i, d in enumerate(decisions) if d.action == "ask"]
    assert len([i for i in questioned if i < 40]) >= 30 and not [i for i in questioned if i >= 60]
    assert all(d.reason == "rests_on_suspects: p, q" for i, d in enumerate(decisions) if i in questioned)
    assert {d.action for d in poisoning([pair(i, columns={"votes": {"a": 1, "b": -1}}) for i in range(5)])} == {
        "keep"
    }, "two are too few"


def test_protected_texts():
    guard = Protected(["The quick brown fox jumps over the lazy dog today", "What is 50 plus 88", "too short"])
    assert guard.overlap("they say: the QUICK brown fox jumps over the lazy dog today!") == 1.0
    assert guard.overlap("Tell me what is 50 plus 88 please, as soon as you can") == 1.0
    assert guard.overlap("What is 50 plus 89") == 0.0 and guard.overlap("too short") == 0.0 and guard.overlap("") == 0.0
    assert guard.overlap("the quick brown fox jumps over the lazy cat") == 0.5  # one of two grams, of three


def said(**by):
    return tuple(Decision(step=k, action="remove" if v < 0.5 else "keep", reason="x", score=v) for k, v in by.items())


def test_the_policy_learns_from_anchors_whom_to_believe():
    """Text says 0.9 wrong of all; on the anchors it is wrong half of the time, so its temperature rises and nothing is
    removed for it."""
    right = [
        pair(i, decisions=said(confident_learning=0.1 if i % 2 else 0.9), columns={"anchor": 1 if i % 4 < 2 else -1})
        for i in range(40)
    ]
    (decision,) = policy([*right, pair(99, decisions=said(confident_learning=0.1))], prior=0.5, cost=2.0)[-1:]
    (naive,) = policy([pair(99, decisions=said(confident_learning=0.1))], prior=0.5, cost=2.0)
    assert naive.action == "remove" and decision.action == "weight" and decision.score > naive.score + 0.2


def test_sources_that_see_the_same_count_once():
    twice = policy([pair(decisions=said(confident_learning=0.04, blind_margin=0.04))])[0]
    assert twice.action == "remove" and twice.score == pytest.approx(0.04)
    assert policy([pair(decisions=said(confident_learning=0.04, annotators=0.04))])[0].action == "flip"


def test_policy_refuses_senseless_knobs():
    with pytest.raises(ValueError, match=r"prior = 0, flip_above = 0.9, cost = 0.5: write probabilities in \(0, 1\)"):
        policy([], prior=0)


@pytest.mark.parametrize(
    ("text", "sums"),
    [
        ("2 plus 7 is 10.", [("2 plus 7", "10", 9)]),
        ("<<16-3=13>>13, so 4 * 2 + 3 = 11", [("16-3", "13", 13), ("4 * 2 + 3", "11", 11)]),
        ("$1,000 + $2 = $1,002", [("$1,000 + $2", "$1,002", 1002)]),
        ("6 / 4 = 1.5", [("6 / 4", "1.5", 1.5)]),
        ("x + 2 + 3 = 7, (2 + 3) * 4 = 20, 2 + 3 = 5 + 1, a2 + 3 = 9, 3 / 0 = 2", []),
        ("pages 10-12 is 40, 20% * 50 = 10, 3 1/2 - 2 = 1, 2 + 3 = 5x, 2^3 + 1 = 9", []),
    ],
)
def test_only_whole_sums_are_statements(text, sums):
    assert [(a, b, float(c)) for a, b, c in stated(text)] == sums


def test_a_wrong_sum_is_asked_about_in_a_sentence_that_a_person_can_check():
    wrong, right = "2 plus 7 is 10.", "2 plus 7 is 9."
    decisions = arithmetic([pair(chosen=a, rejected=b) for a, b in [(wrong, right), (right, wrong), (wrong, wrong)]])
    assert [d.action for d in decisions] == ["ask", "keep", "keep"]
    assert decisions[0].reason.endswith("says 2 plus 7 is 10, but it is 9; the rejected side has no wrong sum")
    rounded = arithmetic([pair(chosen="10 / 3 = 3.33 and 7 / 2 = 3", rejected=right)])
    assert [d.action for d in rounded] == ["keep"]


def test_the_probability_that_is_told_begins_at_the_rate_of_this_file():
    def told(scores, **knobs):
        given = [pair(i, decisions=said(confident_learning=s)) for i, s in enumerate(scores)]
        return policy(given, cautious=True, rate="estimated", **knobs)

    # The threshold of 35 scores of 0.9, 5 of 0.2 and 5 of 0.5 is their mean, 34.99 / 45 = 0.78: 35 stay, 5 move (0.8): e = 5 / 40.
    decisions = told([0.9] * 35 + [0.2] * 5 + [0.5] * 5)
    assert decisions[-1].score == pytest.approx(1 - 5 / 40) and "wrong: 0.12, where 12% of all" in decisions[-1].reason
    assert decisions[0].score == pytest.approx(1 - 1 / (1 + 7 * 9))  # odds 1/7 of the rate, 1/9 of the model
    assert [d.action for d in decisions[30:]] == ["weight"] * 5 + ["ask"] * 5 + ["weight"] * 5
    assert told([0.5] * 5)[0].score == pytest.approx(0.9)  # too few to estimate: the prior


PIECES = st.sampled_from(
    [
        *KEYS,
        " ",
        "\n",
        "a",
        "A",
        "é",
        "e\u0301",
        "\x00",
        "\x0b",
        "\x1c",
        "\x7f",
        "1 + 1 = 3",
        "2 Plus 2 is 5",
        "word " * 40,
    ]
)


@given(st.lists(PIECES, max_size=5).map("".join), st.lists(PIECES, max_size=5).map("".join))
def test_what_is_answered_without_reading_all_of_a_text_is_the_same(a, b):
    plain = _plain(a)
    assert is_key(a) == (plain in set(map(_plain, KEYS)) or not any(c.isalnum() for c in plain))
    assert _broken(a) == bool(_BROKEN.search(a))
    assert bool(stated(a)) <= bool(_STATED.search(a))
    folded = [" ".join(unicodedata.normalize("NFKC", x).casefold().split()) for x in (a, b)]
    assert (_fault(pair(0, a, b)) in ("identical_sides", "same_letters")) == (
        bool(folded[0]) and folded[0] == folded[1]
    )
