"""The site of the documents builds, has every page, can be searched, and no link in it is broken."""

import json

import pytest

from docs.generators import site


@pytest.mark.slow
def test_the_site_builds_without_a_broken_link(tmp_path):
    site.build(tmp_path / "site")
    out = tmp_path / "site"
    assert list(site.broken(out)) == []
    torn = [p.name for p in out.rglob("*.html") if "source" not in p.parts and "```" in p.read_text(encoding="utf-8")]
    assert torn == [], "a block of code was not read as one"
    home = (out / "index.html").read_text(encoding="utf-8")
    assert all(title in home for title, _ in site.nav())
    index = json.loads((out / "search.json").read_text(encoding="utf-8"))
    places = {item["location"].partition("#")[0] for item in index["items"]}
    assert "docs/glossary.html" in places and not any(p.startswith("source/") for p in places)


def test_a_broken_link_is_seen(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="top">A</h1><a href="b.html#there"><a href="b.html#not"><a href="c.html">')
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1><a href="#there"><a href="https://example.org/x">')
    assert list(site.broken(tmp_path)) == ["a.html: b.html#not", "a.html: c.html"]


def test_every_page_is_in_the_list(tmp_path, monkeypatch):
    lost = site.ROOT / "docs/lost.md"
    monkeypatch.setattr(site, "pages", lambda all_pages=site.pages(): [*all_pages, lost])
    with pytest.raises(ValueError, match="names docs/lost.md"):
        site.nav()


def test_links_to_code_lead_to_pages_of_it(tmp_path):
    site.stage(tmp_path)
    text = (tmp_path / "docs/your-model.md").read_text(encoding="utf-8")
    assert "](../source/flows/profiles/gpu.yaml.md)" in text
    shown = (tmp_path / "source/flows/profiles/gpu.yaml.md").read_text(encoding="utf-8")
    assert (site.ROOT / "flows/profiles/gpu.yaml").read_text(encoding="utf-8") in shown
