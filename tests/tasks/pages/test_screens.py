"""The report and the page of `espalier clean` on a telephone and on a desk, measured in a browser: nothing is cut off, what
scrolls says so, what is drawn can be read."""

import browser
import pytest
import test_report
from tests.tasks.rows.test_user_pairs import sums, write

from flows.cli import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        browser.BROWSER is None,
        reason="needs a browser: install chromium, then these tests open the pages of MLflow in it",
    ),
]

WIDER = """[...document.querySelectorAll('body *')].filter(e => !e.closest('svg') && e.clientWidth &&
  e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != 'inline').map(e => ({
    name: `${e.tagName}.${e.className}`, text: e.innerText.slice(0, 60), scrolls: getComputedStyle(e).overflowX,
    hint: getComputedStyle(e).backgroundImage.includes('gradient'), focus: e.tabIndex}))"""
LETTERS = """[...document.querySelectorAll('svg')].filter(s => s.clientWidth).map(s => [
  s.getAttribute('aria-label').slice(0, 60), s.clientWidth / s.viewBox.baseVal.width *
  parseFloat(getComputedStyle(s.querySelector('text')).fontSize)])"""
OUTSIDE = """[...document.querySelectorAll('svg')].filter(s => s.clientWidth).flatMap(s => [...s.querySelectorAll('text')].filter(t =>
  {const a = t.getBoundingClientRect(), b = s.getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1})
  .map(t => t.textContent))"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    test_report.make(root)
    test_report.run(root)
    with browser.page(tmp_path_factory.mktemp("browser")) as shown:
        shown.open((root / "reports/index.html").as_uri(), until="document.querySelector('main section')")
        shown.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        yield shown


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_cut_off_and_what_scrolls_says_so(page, width):
    page.size(width, 800)
    assert page.run("document.documentElement.scrollWidth") <= width
    wider = page.run(WIDER)
    assert all(e["scrolls"] == "auto" and e["hint"] and e["focus"] == 0 for e in wider), wider
    assert any("pass@1" in e["text"] for e in wider) == (width == 390), (
        "the table of results scrolls on a telephone alone"
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_letters_of_plots_are_of_a_size_to_be_read(page, width):
    readable(page, width, plots=9)


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory):
    root = tmp_path_factory.mktemp("cleaned")
    rows, _ = sums(200)
    long = {"prompt": "tell " * 90, "chosen": "https://an.address/without/a/blank/" * 6, "rejected": "no " * 200}
    again = [rows[0], {**rows[1], "chosen": rows[1]["rejected"], "rejected": rows[1]["chosen"]}, long, long]
    main(["clean", write(root / "mine.jsonl", rows + again), "--out", str(root / "out")])
    with browser.page(tmp_path_factory.mktemp("browser")) as shown:
        shown.open((root / "out/index.html").as_uri(), until="document.querySelector('main section')")
        yield shown


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_of_cleaning_fits_too(cleaned, width):
    cleaned.size(width, 800)
    assert cleaned.run("document.documentElement.scrollWidth") <= width
    wider = cleaned.run(WIDER)
    assert all(e["scrolls"] == "auto" and e["hint"] and e["focus"] == 0 for e in wider), wider
    readable(cleaned, width, plots=2)
    sizes = cleaned.run("[...document.querySelectorAll('svg')].map(s => s.clientWidth)")
    assert all(300 <= size <= 700 for size in sizes), "a plot is as wide as a telephone, and no poster on a desk"


def readable(page, width, *, plots):
    """Letters of plots are of a size to be read, and none is outside of its plot."""
    page.size(width, 800)
    sizes = page.run(LETTERS)
    assert len(sizes) >= plots and all(9 <= size <= 17 for _, size in sizes), sizes
    assert not page.run(OUTSIDE)
