"""Which words a regular expression matches as a whole.

Certificate: derivatives of the drawn expression against sets of places moved through the text's expression.
Difficulty axes: parts, words.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = ({"parts": 3, "words": 5}, {"parts": 4, "words": 6}, {"parts": 6, "words": 8}, {"parts": 9, "words": 10})
CERTIFICATE = ("derivatives of the expression", "sets of places moved through the text")
WORDINGS = Wordings(
    "Which of the words {words} does the regular expression {pattern} match from beginning to end?",
    "The regular expression {pattern} must match the whole word. For which of {words} does it?",
    "List all of {words} that the pattern {pattern} matches completely.",
    "A filter lets a word through if all of it matches {pattern}. Which of {words} get through?",
    "Of the words {words}, find those in the language of the regular expression {pattern}.",
    answer="Answer with the words, parted by spaces.",
    words="[abc]+(?:, [abc]+)* and [abc]+",
    pattern=r"[abc|*?()]+",
)
Tree = tuple  # ("", c), ("cat", l, r), ("or", l, r), ("*", t), ("?", t); ("none",) matches nothing, ("empty",) the empty word
Spec = tuple[Tree, list[str], list[str]]


def regular_expressions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: words. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="regular_expressions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, parts: int, words: int) -> tuple[str, Spec]:
    def grow(n: int) -> Tree:
        if n == 1:
            tree: Tree = ("", rng.choice("abc"))
        else:
            left = rng.randint(1, n - 1)
            tree = (rng.choice(("cat", "cat", "or")), grow(left), grow(n - left))
        return (rng.choice("*?"), tree) if rng.random() < 0.35 else tree

    def word(tree: Tree) -> str:
        if tree[0] == "":
            return tree[1]
        if tree[0] == "cat":
            return word(tree[1]) + word(tree[2])
        if tree[0] == "or":
            return word(tree[rng.randint(1, 2)])
        return "".join(word(tree[1]) for _ in range(rng.randint(0, 2 if tree[0] == "*" else 1)))

    while True:
        tree, tried = grow(parts), []
        for _ in range(40):
            w = word(tree)
            if rng.random() < 0.6:
                at = rng.randint(0, len(w))
                w = w[:at] + rng.choice(("a", "b", "c", "ab")) + w[at + rng.randint(0, 1) :]
            if 2 <= len(w) <= 8 and w not in tried and len(tried) < words:
                tried.append(w)
        fits = [w for w in tried if matches(tree, w)]
        if len(tried) == words and 0 < len(fits) < words:
            return f"{write(tree)} {sorted(tried)}", (tree, tried, fits)


def empty(tree: Tree) -> bool:
    match tree[0]:
        case "" | "none":
            return False
        case "cat":
            return empty(tree[1]) and empty(tree[2])
        case "or":
            return empty(tree[1]) or empty(tree[2])
    return True


def derived(tree: Tree, c: str) -> Tree:
    """What is left to match behind the letter."""
    match tree[0]:
        case "":
            return ("empty",) if tree[1] == c else ("none",)
        case "or":
            return ("or", derived(tree[1], c), derived(tree[2], c))
        case "cat":
            first = ("cat", derived(tree[1], c), tree[2])
            return ("or", first, derived(tree[2], c)) if empty(tree[1]) else first
        case "*":
            return ("cat", derived(tree[1], c), tree)
        case "?":
            return derived(tree[1], c)
    return ("none",)


def matches(tree: Tree, word: str) -> bool:
    for c in word:
        tree = derived(tree, c)
    return empty(tree)


def write(tree: Tree) -> str:
    if tree[0] == "":
        return tree[1]
    if tree[0] == "cat":
        return "".join(f"({write(t)})" if t[0] == "or" else write(t) for t in tree[1:])
    if tree[0] == "or":
        return f"{write(tree[1])}|{write(tree[2])}"
    inside = write(tree[1])
    return (inside if len(inside) == 1 else f"({inside})") + tree[0]


def pose(spec: Spec) -> dict[str, Any]:
    tree, words, fits = spec
    return {
        "prompt": WORDINGS.write(words=listed(words), pattern=write(tree)),
        "answer": " ".join(fits),
        "verifier": "item_set",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    pattern, fits = fields["pattern"], []
    for word in fields["words"].replace(" and ", ", ").split(", "):

        def either(at: int, places: set[int], word: str = word) -> tuple[int, set[int]]:
            """Places reached from `places` by the alternatives that begin at `at`, and where these end."""
            out, now = set(), set(places)
            while at < len(pattern) and pattern[at] != ")":
                if pattern[at] == "|":
                    out |= now
                    now, at = set(places), at + 1
                    continue
                at, now = repeated(at, now, word)
            return at, out | now

        def single(at: int, places: set[int], word: str) -> tuple[int, set[int]]:
            if pattern[at] == "(":
                end, out = either(at + 1, places, word)
                return end + 1, out
            return at + 1, {p + 1 for p in places if p < len(word) and word[p] == pattern[at]}

        def repeated(at: int, places: set[int], word: str) -> tuple[int, set[int]]:
            end, out = single(at, places, word)
            if pattern[end : end + 1] == "?":
                return end + 1, out | places
            if pattern[end : end + 1] == "*":
                reached = set(places)
                while not out <= reached:
                    reached |= out
                    out = single(at, reached, word)[1]
                return end + 1, reached
            return end, out

        if len(word) in either(0, {0})[1]:
            fits.append(word)
    return " ".join(fits)
