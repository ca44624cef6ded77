"""Every recipe, run dry: it does what it says, or the table says why not yet.

tests/tasks/lab/test_recipes_*.py run a quarter of all recipes each, so that workers share them.
"""

from tasks.lab import dry
from tasks.planning.resolve import yaml_files

QUARTERS = 4

KNOWN: dict[str, str] = {}  # recipe -> why it does not do all that it says yet; the table only shrinks


def quarter(i: int) -> list[str]:
    """The recipes of the i-th of four files: each recipe is in one of them."""
    return sorted(yaml_files("recipes"))[i::QUARTERS]


def findings(name: str) -> list[str]:
    """What is wrong with a recipe, a sentence each."""
    return list(dict.fromkeys(line.finding for line in dry.table(name) if line.finding))


def does_what_it_says(name: str) -> None:
    """Raises AssertionError for a finding that KNOWN does not explain, and for a reason that nothing needs any more."""
    problems = findings(name)
    if name in KNOWN:
        assert problems, f"{name} does what it says now: take it out of KNOWN"
    else:
        assert not problems, "\n".join(problems)
