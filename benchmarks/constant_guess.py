"""What does one answer earn that is given to every problem of a level? `python -m benchmarks.constant_guess FAMILY...`

For every level of the families named (of all, where none is named, which takes many minutes): the answer that is most
frequent among PROBLEMS problems of split train is given to PROBLEMS fresh problems of split test, and the mean score is
printed. Nothing is written.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from synth.types import Problem, Scored
from synth.verify import verify
from tasks.planning.pieces import files, find, locate, module

PROBLEMS, SEEDS = 100, (1, 2)


def earned(name: str, level: int, problems: int = PROBLEMS) -> tuple[str, float]:
    """(the answer most frequent in train, its mean score on problems of test), for one level of a family."""
    family = find("family", name)
    train, test = (
        [p for i in range(problems) if isinstance(p := family(seed, split, i, levels=[level]), Problem)]
        for seed, split in zip(SEEDS, ("train", "test"), strict=True)
    )
    guess = Counter(p.answer for p in train).most_common(1)[0][0]
    scores = [verify(p, guess) for p in test]
    return guess, sum(s.value for s in scores if isinstance(s, Scored)) / len(test)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="names of families; all of them where none is given")
    args = parser.parse_args()
    for name in [locate("family", given).stem for given in args.families] or sorted(files("family")):
        for level in range(1, 1 + len(module("family", name).LADDER)):
            guess, share = earned(name, level)
            print(f"{name} {level}: {share:.0%} for {guess[:40]!r}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
