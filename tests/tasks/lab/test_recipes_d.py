"""Recipes run dry, the fourth quarter."""

import pytest

from tests.support.whole_recipes import does_what_it_says, quarter


@pytest.mark.parametrize("name", quarter(3))
def test_a_recipe_does_what_it_says(name):
    does_what_it_says(name)
