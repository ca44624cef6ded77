"""Screens as pages: a browser that is told to click and to type is where our rule says, its pictures are drawn once, and whatever it
does ends in one sentence."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from random import Random

import numpy as np
import pytest

from synth.families.screen_tasks import screen_tasks
from synth.pictures import HELD
from synth.scenes import draw
from synth.scenes.pages import page
from synth.scenes.scenes import CELL
from synth.scenes.screens import INK, STATES, Screen, Widget, after, pixels, read
from synth.types import Problem
from tasks.core.errors import UserError
from tasks.models import browser, drawn_pages, tools
from training.env.page import page as page_env
from training.env.screen import screen

needs_browser = pytest.mark.skipif(
    browser.program() is None,
    reason="needs a browser: install chromium, then these tests draw screens in it",
)
SCREEN = "Screen of 32: green button 0 0 pressed; blue field 3 0; red button 1 2; yellow field 2 2 a; cursor 2 3"
SEEN = """(() => { const box = e => (r => [r.left, r.top, r.right, r.bottom])(e.getBoundingClientRect()), i = document.querySelector('i')
return { presses, pointer: i.hidden ? null : box(i).slice(0, 2), widgets: [...document.querySelectorAll('button, input')].map(e => [
  e.title, box(e), e.tagName == 'INPUT' ? e.value || (e === document.activeElement ? 'focus' : '') : e.classList.contains('pressed') ? 'pressed' : '']) } })()"""


@pytest.fixture(scope="module")
def chromium():
    shown = browser.Browser(browser.program())
    yield shown
    shown.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    drawer = drawn_pages.Pages(tmp_path_factory.mktemp("pages"))
    yield drawer
    drawer.close()


def act(chromium, action, times=1):
    """One action by the mouse or the keyboard. times: of the press, as browsers count presses in quick succession."""
    what, *at = action.split()
    if what == "type":
        chromium.call("Input.dispatchKeyEvent", type="keyDown", key=at[0], text=at[0])
        chromium.call("Input.dispatchKeyEvent", type="keyUp", key=at[0])
        return
    place = dict(zip("xy", (CELL * int(v) + CELL // 2 for v in at), strict=True))
    chromium.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
    for event in ("mousePressed", "mouseReleased"):
        chromium.call("Input.dispatchMouseEvent", type=event, button="left", clickCount=times, **place)


def told(screen, presses):
    """What the page should say of itself."""
    pointer = [CELL * v + CELL // 2 for v in screen.cursor] if screen.cursor else None
    return {
        "presses": presses,
        "pointer": pointer,
        "widgets": [[w.name, [*w.box], w.state] for w in screen.widgets],
    }


def random_screen(rng):
    """Widgets in any states, of which one at most has the focus."""
    cells = rng.sample([(x, y) for x in range(4) for y in range(4)], rng.randint(2, 7))
    widgets, free = [], True
    for (x, y), colour in zip(cells, 2 * ("red", "green", "blue", "yellow"), strict=False):
        kind = "button" if len(widgets) < 1 or (len(widgets) > 4 and rng.random() < 0.5) else "field"
        state = rng.choice([s for s in ("", "", *STATES[kind]) if s != "focus" or free])
        free &= state != "focus"
        widgets.append(Widget(colour, kind, x, y, state))
    return Screen(32, tuple(widgets), rng.choice([None, (rng.randrange(4), rng.randrange(4))]))


def random_action(rng, screen):
    """A click on a widget, anywhere, or a letter."""
    if rng.random() < 0.35:
        return f"type {rng.choice('abcd')}"
    w = rng.choice(screen.widgets)
    x, y = (w.x, w.y) if rng.random() < 0.7 else (rng.randrange(4), rng.randrange(4))
    return f"click {x} {y}"


@needs_browser
@pytest.mark.slow
def test_a_browser_does_what_our_rule_says(chromium, pages):
    """200 screens, six actions each: the state of the page after every action, and of every fourth its picture at the end, which is
    that of a page which was never acted on. Two clicks on one place are a double click, as a hand would have made it."""
    rng, done = Random(5), {"filled": 0, "unfocused": 0, "lost": 0, "pressed": 0}
    for n in range(200):
        now, presses, before = random_screen(rng), [], ""
        chromium.show(page([now]), 32, 32)
        assert chromium.run(SEEN) == told(now, presses), now.text
        for _ in range(6):
            action = random_action(rng, now)
            act(chromium, action, 2 if action == before else 1)
            then = after(now, action)
            at = next((w for w in now.widgets if action == f"click {w.x} {w.y}"), None)
            focused = any(w.state == "focus" for w in now.widgets)
            done["filled"] += bool(at and at.kind == "field" and at.state not in ("", "focus"))
            done["unfocused"] += action.startswith("type") and not focused
            done["lost"] += at is None and action.startswith("click") and focused
            done["pressed"] += bool(at and at.kind == "button")
            presses += [at.name] if at and at.kind == "button" else []
            assert chromium.run(SEEN) == told(then, presses), f"{now.text}: {action}"
            now, before = then, action
        if n % 4 == 0:
            assert (shot(chromium) == pages.draw([now])[0]).all(), now.text
    assert min(done.values()) > 25, done


def shot(chromium):
    import io

    from PIL import Image

    return np.array(Image.open(io.BytesIO(chromium.picture())).convert("RGB"))


@needs_browser
def test_by_hand(chromium, pages):
    """A double click on a letter marks it, and another letter would take its place: the page holds what it holds."""
    chromium.show(page([read(SCREEN)]), 32, 32)
    act(chromium, "click 2 2")
    act(chromium, "click 2 2", 2)
    assert (shot(chromium) == pages.draw([after(read(SCREEN), "click 2 2")])[0]).all(), "no mark is seen"
    act(chromium, "type b")
    act(chromium, "click 1 2")
    act(chromium, "click 1 2")
    seen = chromium.run(SEEN)
    assert seen["presses"] == ["red button", "red button"]
    assert [state for _, _, state in seen["widgets"]] == ["pressed", "", "pressed", "a"]
    act(chromium, "click 3 0")
    assert chromium.run(SEEN)["widgets"][1][2] == "focus"
    act(chromium, "click 3 3")
    act(chromium, "type c")
    assert chromium.run(SEEN)["widgets"][1][2] == ""


@needs_browser
def test_a_picture_shows_the_screen_in_the_same_places(pages):
    shown = read(SCREEN)
    (drawn,) = pages.draw([shown])
    assert drawn.shape == (32, 32, 3) and drawn.dtype == np.uint8
    ours = pixels(shown)
    for w in shown.widgets:
        left, top, right, bottom = w.box
        edge = drawn[top:bottom, left:right]
        assert (edge[0, 1:-1] == ours[top, left]).all() and (edge[1:-1, -1] == ours[top, left]).all(), w.name
        assert (drawn[top - 1, left : right + 1] == ours[0, 7]).all(), "the ground begins where the widget ends"
    assert tuple(drawn[18, 10]) == tuple(ours[18, 10]) and (drawn[2, 2] == INK).all(), "pressed is a dark frame"
    (large,) = pages.draw([shown], scale=4)
    assert large.shape == (128, 128, 3) and tuple(large[4 * 20, 4 * 12]) == tuple(ours[20, 12])


@needs_browser
def test_a_sheet_is_the_pages_side_by_side(pages):
    rng = Random(1)
    screens = [random_screen(rng) for _ in range(40)]
    alone = drawn_pages.Pages(pages.folder / "alone")
    together = pages.draw(screens)
    assert all((x == alone.draw([s])[0]).all() for s, x in zip(screens[::8], together[::8], strict=True))
    alone.close()
    focused = [Screen(8, (Widget("red", "field", 0, 0, "focus"),))] * 2
    assert len({x.tobytes() for x in pages.draw(focused)}) == 1, "of two fields with the focus each shows it"


@needs_browser
def test_pages_are_drawn_once_and_later_without_a_browser(tmp_path):
    first = drawn_pages.Pages(tmp_path)
    shown = read(SCREEN)
    (drawn,) = first.draw([shown])
    count = first.drawn
    (near,) = first.draw([after(shown, "click 3 0")])
    assert first.drawn == count > 10, "what one action makes of a screen is drawn with it"
    first.close()
    later = drawn_pages.Pages(tmp_path, path="")
    assert (later.draw([shown])[0] == drawn).all() and (later.draw([after(shown, "click 3 0")])[0] == near).all()
    with pytest.raises(UserError, match="neither a browser nor its picture in .* is here: install Chromium"):
        later.draw([shown], scale=2)
    file = later.file
    assert file is not None
    import sqlite3

    with sqlite3.connect(file) as db:
        db.execute("UPDATE pages SET rgb = substr(rgb, 1, 20)")
    with pytest.raises(UserError, match="drawn: numpy"):
        drawn_pages.Pages(tmp_path, path="").draw([shown])
    file.write_bytes(b"no database")
    again = drawn_pages.Pages(tmp_path)
    assert (again.draw([shown])[0] == drawn).all(), "a damaged cache costs time alone"
    again.close()


@needs_browser
def test_the_environments_show_pages_and_score_as_before(pages, monkeypatch):
    monkeypatch.setattr(drawn_pages, "_pages", lambda process: pages)
    p = screen_tasks(0, "train", 3, asks=["steps"], env="screen")
    assert isinstance(p, Problem)
    played = {}
    for drawn in ("numpy", "browser"):
        env = screen(drawn=drawn)
        state, shown = env.start(p, tools.bound(None, [env]))
        score, over = None, False
        for action in p.answer.split("; "):
            assert not over
            more, over, score = env.step(state, f"<act>{action}</act>")
            shown = [*shown, *more]
        played[drawn] = [m.content for m in shown], score, [HELD.of(n) for m in shown for n in m.media]
    assert played["numpy"][:2] == played["browser"][:2] and played["browser"][1].value == 1.0
    now = read(p.question.partition("\n")[0])
    for ours, theirs, action in zip(
        played["numpy"][2], played["browser"][2], [*p.answer.split("; "), ""], strict=False
    ):
        assert (ours == pixels(now)).all() and (theirs == pages.draw([now])[0]).all() and (ours != theirs).any()
        now = after(now, action) if action else now
    env = page_env()
    _, (shown,) = env.start(p, tools.bound(None, [env]))
    assert (HELD.of(shown.media[0]) == played["browser"][2][0]).all()
    with pytest.raises(ValueError, match="draws screens alone"):
        other = Problem.make(
            prompt="Scene of 32: red ring 4 at 0 0\nWhich?", answer="a", verifier="exact", family="x", split="train"
        )
        env.start(other, tools.bound(None, [env]))


def test_a_page_has_screens_of_one_side():
    for screens in ([], [Screen(32, ()), Screen(64, ())]):
        with pytest.raises(ValueError, match="needs screens of one side"):
            page(screens)
    assert page([read(SCREEN)]) == page([read(SCREEN)]) != page([after(read(SCREEN), "click 0 0")])


def test_without_the_tool_it_is_one_sentence():
    p = Problem.make(
        prompt=f"{SCREEN}\nPress the red button.", answer="click 1 2", verifier="clicks", family="x", split="train"
    )
    for env in (screen(drawn="browser"), page_env()):
        with pytest.raises(LookupError, match="has no tool `page`"):
            env.start(p, {"draw": draw})
    with pytest.raises(ValueError, match="name numpy or browser"):
        screen(drawn="crayon")  # type: ignore[arg-type]


def test_without_a_browser_and_without_a_cache_it_says_what_to_install(tmp_path):
    with pytest.raises(UserError, match="install Chromium .`apt-get install chromium fonts-dejavu-core`"):
        drawn_pages.Pages(tmp_path / "none", path="").draw([read(SCREEN)])


def test_without_browser_and_pillow_one_sentence_says_both(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_pages, "find_spec", lambda name: None)
    both = r"install Chromium .*fonts-dejavu-core.* and Pillow \(`pip install 'espalier\[vision\]'`\), or write `drawn: numpy`"
    with pytest.raises(UserError, match=both):
        drawn_pages.Pages(tmp_path / "none", path="").draw([read(SCREEN)])


def test_without_pillow_it_says_what_to_install_and_starts_no_browser(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_pages, "find_spec", lambda name: None)
    monkeypatch.setattr(drawn_pages, "Browser", None)
    with pytest.raises(UserError, match=r"read by Pillow: pip install 'espalier\[vision\]'"):
        drawn_pages.Pages(tmp_path / "none", path="chromium").draw([read(SCREEN)])


FAKES = {  # what a broken browser does -> what is said of it
    "exit 3": "did not start: it ended with code 3",
    "echo 'no display' >&2; exit 1": r"did not start: it ended with code 1 \(no display\)",
    "sleep 1000 & sleep 1000": "did not start: it said nothing for 1 s and was ended",
    "printf 'hello\\0' >&4; sleep 1000": "did not start: Expecting value",
    "exec 3<&-; while :; do printf '{\"id\": 0}\\0' >&4; sleep 0.1; done": "did not start: it said nothing for 1 s|did not start: it ended",
}


@pytest.mark.parametrize(("does", "message"), FAKES.items())
def test_a_broken_browser_is_one_sentence_and_leaves_nothing_behind(tmp_path, does, message):
    fake = program(tmp_path, does)
    began = time.monotonic()
    with pytest.raises(UserError, match=message) as e:
        browser.Browser(str(fake), seconds=1)
    assert "--dump-dom about:blank` works here" in str(e.value) and time.monotonic() - began < 60
    assert not running(str(fake))


@needs_browser
def test_a_browser_that_hangs_later_is_one_sentence(tmp_path):
    one = browser.Browser(browser.program())
    folder = str(one._folder)
    assert running(folder)
    one.seconds = 1
    with pytest.raises(UserError, match="did not answer Runtime.evaluate: it said nothing for 1 s and was ended"):
        one.run("(() => { while (true); })()")
    assert not running(folder) and not os.path.exists(folder)
    one.close()


@needs_browser
@pytest.mark.parametrize("killed", [False, True])
def test_no_browser_outlives_its_process(tmp_path, killed):
    """However that one ends."""
    code = f"""
import os
from tasks.models.browser import Browser, program
one = Browser(program())
print(one._folder, flush=True)
{"os.kill(os.getpid(), 9)" if killed else "raise SystemExit(3)"}
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    folder = done.stdout.strip()
    assert folder.startswith(str(tmp_path)) and done.returncode == (-9 if killed else 3)
    for _ in range(600):
        if not running(folder):
            return
        time.sleep(0.1)
    raise AssertionError(f"a browser is left: {running(folder)}")


def program(folder, does):
    fake = folder / "fake-browser"
    fake.write_text(f"#!/bin/bash\n{does}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    return fake


def running(text):
    """Processes with this text in their command line."""
    listed = subprocess.run(["ps", "-eww", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    return [x for x in listed.splitlines() if text in x and not x.split()[1].startswith("Z")]
