"""One traversal of a binary tree from two others.

Certificate: traversals of the drawn tree against the order rebuilt from the two of the text without a tree.
Difficulty axes: nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"nodes": 4}, {"nodes": 6}, {"nodes": 9}, {"nodes": 13})
CERTIFICATE = ("traversals of the tree", "rebuilt from the two orders of the text")
WORDINGS = Wordings(
    "A binary tree has the preorder {pre} and the inorder {mid}. What is its postorder?",
    "Preorder: {pre}. Inorder: {mid}. Give the postorder of this binary tree.",
    "Visiting a binary tree root first gives {pre}; visiting left subtree, root, right subtree gives {mid}. In which order does a visit that takes each root last go?",
    "Find the postorder of the binary tree whose inorder is {mid} and whose preorder is {pre}.",
    "The nodes of a binary tree read {pre} in preorder and {mid} in inorder. How do they read in postorder?",
    answer="Answer with the letters, parted by spaces.",
    pre="[A-Z](?: [A-Z])+",
    mid="[A-Z](?: [A-Z])+",
)
Tree = tuple | None
Spec = Tree


def tree_traversals(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: letters in an order. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="tree_traversals",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, nodes: int) -> tuple[str, Spec]:
    names = rng.sample("ABCDEFGHIJKLMNOPQRSTUVWXYZ", nodes)

    def grow(left: list[str]) -> Tree:
        if not left:
            return None
        at = rng.randrange(len(left))
        return (left[at], grow(left[:at]), grow(left[at + 1 :]))

    tree = grow(names)
    return f"{tree}", tree


def walk(tree: Tree, order: str) -> list[str]:
    """The names in the order of the signs: N the node, L and R its subtrees."""
    if tree is None:
        return []
    name, left, right = tree
    return [x for sign in order for x in ([name] if sign == "N" else walk(left if sign == "L" else right, order))]


def pose(spec: Spec) -> dict[str, Any]:
    pre, mid, post = (" ".join(walk(spec, order)) for order in ("NLR", "LNR", "LRN"))
    return {"prompt": WORDINGS.write(pre=pre, mid=mid), "answer": post, "verifier": "ordered_list"}


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    pre, mid = fields["pre"].split(), fields["mid"].split()
    if sorted(pre) != sorted(mid):
        raise Refused("impossible: the two orders do not hold the same letters")

    def last(pre: list[str], mid: list[str]) -> list[str]:
        if not pre:
            return []
        at = 0
        while mid[at] != pre[0]:
            at += 1
        return last(pre[1 : at + 1], mid[:at]) + last(pre[at + 1 :], mid[at + 1 :]) + pre[:1]

    return " ".join(last(pre, mid))
