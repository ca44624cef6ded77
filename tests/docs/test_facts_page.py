"""docs/examples/facts.md is what its generator writes, and says how many facts were right."""

import json

from docs.generators import facts as page


def test_the_page_is_as_generated():
    assert page.PAGE.read_text(encoding="utf-8") == page.page()


def test_the_share_of_right_facts_is_counted_from_the_rows():
    samples = json.loads(page.READ.read_text(encoding="utf-8"))["samples"]
    text = page.page()
    assert {name: len(rows) for name, rows in samples.items()} == {"facts": 130, "links": 130, "types": 160}
    for name, rows in samples.items():
        right = len(rows) - len([r for r in rows if r["fault"]])
        assert f"| {page.TITLES[name][0]} | {len(rows)} | {right} |" in text and right / len(rows) >= 0.97
        assert len({r["says"] for r in rows}) == len(rows)


def test_a_fact_as_a_cell():
    assert page.cell("film:Dip | film_directed_by | person:A*B") == "film:Dip · film directed by · person:A\\*B"
    assert page.cell("Dip | song") == "Dip · song"
