"""docs/examples/systems.md is what the recipes and their evidence say, and its commands name what there is."""

import re

from docs.generators import systems as page
from tasks.planning.environments import environments
from tasks.planning.pieces import locate
from tasks.planning.resolve import yaml_files


def test_the_page_is_current():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "make methods"


def test_every_system_is_a_recipe_that_says_what_it_gained_and_leaves_out():
    names = [name for rows in page.SHOWN.values() for name in rows]
    assert len(set(names)) == len(names) and set(names) <= yaml_files("recipes").keys()
    for name in names:
        assert page.gained(name), f"{name}: none of its protocols has run"


def test_what_was_said_before_stays_on_the_page():
    text = page.gained("creative-slm-raif")
    assert (
        text.startswith("*unseen*, substantive: Under GRPO") and "; before, **holds**: Pairs that two critics" in text
    )


def test_the_checkers_words_are_shown_and_masked():
    lines = page.episode("retry")
    turns = [x for x in lines if x.split()[1] == "model"]
    (told,) = [x for x in lines if x.split()[1] == "told"]
    assert re.fullmatch(r"masked +told +Step \d+: \w+ is not \w+\.", told)
    assert len(turns) == 2 and turns[0] != turns[1] and all(x.startswith("loss") for x in turns)
    assert lines.index(turns[0]) < lines.index(told) < lines.index(turns[1])


def test_its_commands_name_families_and_environments_that_there_are():
    known = {e.name for e in environments()}
    looks = [look for rows in page.SHOWN.values() for look in rows.values() if look]
    for look in (x for one in looks for x in one.split("; ")):
        if env := re.fullmatch(r"env show (\w+)", look):
            assert env[1] in known
        elif not look.startswith("families "):
            assert (page.ROOT / "flows" / "cli" / f"{look.split()[0]}.py").exists()
        else:
            assert locate("family", look.removeprefix("families ")).exists()
