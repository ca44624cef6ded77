"""The pictures of docs/media.md are what their code draws, and its examples are those of the page."""

import numpy as np
from PIL import Image

from docs.generators import media
from synth.scenes import clips, painter, scenes, screens
from tasks.core.paths import CODE as ROOT
from tasks.lab import clip_worlds, picture_worlds
from training.env.control.views import compared


def test_the_committed_picture_is_the_drawn_one():
    with Image.open(media.FILE) as shown:
        assert np.array_equal(np.asarray(shown.convert("RGB")), media.picture()), "run `make media`"


def test_the_page_describes_what_the_picture_shows():
    page = (ROOT / "docs/media.md").read_text(encoding="utf-8")
    assert "](images/media.png)" in page
    for text in (media.SCENE, media.CLIP, media.SCREEN, media.ACTIONS):
        assert text in page
    shown = media.picture()
    cell = media.SIDE + media.GAP
    first = shown[media.GAP // 2 :][: media.SIDE, media.GAP // 2 : media.GAP // 2 + media.SIDE][::4, ::4]
    assert {t.name for t in scenes.seen(first)} == {"red square", "blue ring", "green cross", "yellow triangle"}
    below = shown[cell + media.GAP // 2 :][: media.SIDE, media.GAP // 2 : media.GAP // 2 + media.SIDE][::4, ::4]
    assert clips.tracks_seen([below]).keys() == {"red square"}
    third = shown[2 * cell + media.GAP // 2 :][: media.SIDE, media.GAP // 2 : media.GAP // 2 + media.SIDE][::4, ::4]
    assert set(screens.seen(third).widgets) == set(screens.read(media.SCREEN).widgets)


def test_the_committed_worlds_are_the_drawn_ones_and_each_is_a_whole_score():
    with Image.open(media.WORLDS) as shown:
        assert np.array_equal(np.asarray(shown.convert("RGB")), media.worlds()), "run `make media`"
    page = media.PAGE.read_text(encoding="utf-8")
    assert media.generated(page) == page, "run `make media`"
    assert media.SEEN.keys() | {"browsing"} == {*picture_worlds.TASKS, *clip_worlds.WORLDS}, "browsing is in pages.png"
    for name, example in media.SEEN.items():
        pictures, score = example.played()
        assert score == 1.0 and len(pictures) <= media.MOST, name


def test_the_committed_pages_show_what_numpy_shows():
    """Whatever browser drew them: letters and the pointer differ between versions, the edges of widgets do not."""
    with Image.open(media.PAGES) as opened:
        shown = np.asarray(opened.convert("RGB"))
    assert "](images/pages.png)" in media.PAGE.read_text(encoding="utf-8")
    cell, edge = media.SIDE + media.GAP, media.GAP // 2
    for y in range(3):
        for x, screen in enumerate(media.acted()):
            large = shown[y * cell + edge :][: media.SIDE, x * cell + edge : x * cell + edge + media.SIDE]
            ours = screens.pixels(screen).repeat(4, 0).repeat(4, 1)
            assert y or np.array_equal(large, ours)
            for w in screen.widgets:
                left, top, right, bottom = (4 * v for v in w.box)
                # The pointer is on the others.
                for line in (
                    large[top, left + 4 : right - 4],
                    large[top + 4 : bottom - 4, left],
                ):
                    assert (line == ours[top, left]).all(), (screen.text, w, y)


def test_what_generators_make_is_as_the_table_says():
    examples = media.generators()
    views = np.stack([1.0 - (v[..., 0] == 255) for v in examples["views"]]) * 2 - 1
    assert compared(views)[0] == 0
    first, second = ({t.name: t.size for t in scenes.seen(p)} for p in examples["painter"])
    ant = " ".join(painter.look("ant"))
    (cow,) = first.keys() - {ant}
    assert first[ant] > first[cow] and second[ant] < second[cow]
