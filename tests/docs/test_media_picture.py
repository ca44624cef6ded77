"""The picture of docs/media.md is what its code draws, and its examples are those of the page."""

import numpy as np
from PIL import Image

from docs.generators import media
from synth.scenes import clips, scenes, screens
from tasks.core.paths import CODE as ROOT


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
