"""Templates: what is put into a page is text, and shows what it is."""

import ast
import re
from pathlib import Path

import pytest
from markupsafe import Markup

from tasks.pages import page, plots
from tasks.pages.flowchart import flowchart
from tasks.pages.render import Macros, environment, render

CODE = Path(__file__).parents[3]
EVIL = "<script>alert('1')</script>\"&\u202e\x1b[2J"
SHOWN = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&#34;&amp;\ufffd\ufffd[2J"
EPISODE = {
    "messages": [{"role": r, "content": EVIL} for r in ("user", "assistant", "tool", EVIL)]
    + [{"role": "assistant", "content": f"{EVIL}<search>{EVIL}</search><answer>{EVIL}</answer>{EVIL}"}],
    **dict.fromkeys(("outcome", "env", "family", "model", "run", "answer"), EVIL),
}
MEAN = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 3}


@pytest.mark.parametrize(
    "make",
    [
        lambda: page.page(EVIL, EVIL, EVIL, [(EVIL, Markup("<p>ours</p>")), (EVIL, EVIL)]),
        lambda: page.table([EVIL], [[EVIL], [page.dotted(EVIL, EVIL)]]),
        lambda: page.stack({EVIL: 1}),
        lambda: page.tags({EVIL: EVIL}),
        lambda: page.episode(EPISODE),
        lambda: page.panels(
            [EVIL], lambda column, label: plots.bands({EVIL: (EVIL, [1, 2], [1, 2], None, None)}, x=EVIL, y=label)
        ),
        lambda: plots.lines({EVIL: ([1, 2], [1, 2])}, x=EVIL, y=EVIL, legend={EVIL: EVIL}),
        lambda: plots.whiskers([(EVIL, EVIL, MEAN)], x=EVIL),
        lambda: plots.reliability({EVIL: [{"confidence": 0.5, "right": 0.5, "n": 1}]}),
        lambda: flowchart({EVIL: (EVIL, EVIL)}, {EVIL: [EVIL]}),
        lambda: Macros("comparison.html").flips(
            [{"a": 0, "b": 1, **dict.fromkeys(("question", "said_a", "said_b", "reference"), EVIL)}]
        ),
        lambda: Macros("report.html").results(
            EVIL, [(EVIL, EVIL, 0.5)], EVIL, EVIL, EVIL, EVIL, EVIL, EVIL, {EVIL: EVIL}
        ),
    ],
)
def test_hostile_text_is_escaped_wherever_it_stands(make):
    html = make()
    assert isinstance(html, Markup) and SHOWN in html
    assert "<script>" not in html and EVIL[-5:] not in html and "\x1b" not in html


def test_a_name_that_a_template_lacks_is_an_error():
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError, match="lead"):
        render("page.html", title="")


def test_every_template_can_be_read():
    names = environment().list_templates()
    assert "page.html" in names and "page.css" in names
    for name in names:
        environment().get_template(name)


def test_no_tag_is_written_outside_the_templates():
    tag = re.compile(
        r"</?(div|p|span|table|t[dhr]|[ou]l|li|h[1-6]|svg|section|details|summary|html|head|body|form|code|b|i)\b[^<]*>"
    )
    places = []
    for path in [p for folder in ("tasks", "flows") for p in sorted((CODE / folder).rglob("*.py"))]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        places += [
            f"{path.name}:{n.lineno}"
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant)
            and isinstance(n.value, str)
            and tag.search(n.value)
            or isinstance(n, ast.Call)
            and getattr(n.func, "id", "") == "Markup"
            and n.args
            and path.name != "render.py"
        ]
    assert not places


def test_no_page_advises_make_which_a_project_of_ones_own_has_not():
    for path in sorted((CODE / "tasks/pages/templates").glob("*.html")):
        assert not re.search(r"<code>make ", path.read_text(encoding="utf-8")), path.name
