"""Pictures in rows of the user's own: decoded to RGB, or refused with a reason.

A row's field `images` is a list of pictures, or one: the path of a file, relative to the file of rows, or the value of
an image column of `datasets` (a picture, or its encoded bytes).
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tasks.core.errors import UserError

MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"}  # 8 bits or fewer per channel
MOST = 1 << 24  # pixels
UNREADABLE = (OSError, SyntaxError, EOFError, ValueError, TypeError, LookupError, struct.error)  # of damaged files


class Refused(ValueError):
    """A picture that is not shown: "reason: evidence"."""


def decoded(given: Any, folder: Path | None) -> np.ndarray:
    """The pixels [H, W, 3] uint8 of one picture, turned as its EXIF says, on white where it is transparent.

    folder: where paths begin. Raises Refused for a picture that cannot be shown, and UserError
    without Pillow.
    """
    if find_spec("PIL") is None:
        raise UserError("rows with images need Pillow: pip install 'espalier[vision]'")
    from PIL import Image, ImageOps, UnidentifiedImageError

    what, source = _source(given, folder)
    try:
        with Image.open(source) if not isinstance(source, Image.Image) else source as image:
            if (frames := getattr(image, "n_frames", 1)) != 1:
                raise Refused(f"several_frames: {what} has {frames}: give each as a picture of its own")
            if image.mode not in MODES:
                raise Refused(f"picture_mode: {what} is of mode {image.mode}: save it with 8 bits per channel")
            if image.width * image.height > MOST:
                raise Refused(f"large_picture: {what} has {image.width} x {image.height} pixels: make it smaller")
            image.load()
            upright = ImageOps.exif_transpose(image)
            if upright.has_transparency_data:
                clear = upright.convert("RGBA")
                upright = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
            pixels = np.array(upright.convert("RGB"))
    except Refused:
        raise
    except UnidentifiedImageError:  # it would name the place of the file on this machine, or of the bytes in memory
        raise Refused(f"bad_picture: {what} cannot be decoded (it is no picture that Pillow knows)") from None
    except (*UNREADABLE, Image.DecompressionBombError) as e:
        why = str(e).replace(repr(str(source)), repr(what)).replace(str(source), what).strip()
        raise Refused(f"bad_picture: {what} cannot be decoded ({why or type(e).__name__})") from None
    if not pixels.any():
        raise Refused(f"blank_picture: every pixel of {what} is 0, which processors take for padding")
    return pixels


def _source(given: Any, folder: Path | None) -> tuple[str, Any]:
    """What to call a picture, and what Pillow opens."""
    if isinstance(given, Mapping) and isinstance(given.get("bytes"), bytes):
        return str(given.get("path") or "the picture"), io.BytesIO(given["bytes"])
    if isinstance(given, Mapping):
        given = given.get("path")
    if hasattr(given, "convert") and hasattr(given, "mode"):
        return "the picture", given
    if not isinstance(given, str) or not given.strip():
        raise Refused(f"bad_picture: {given!r:.80} is no path and no picture")
    if folder is None:
        raise Refused(f"missing_picture: {given}: paths need a file of rows on this machine")
    path = Path(os.path.normpath(folder / given))
    if not path.is_relative_to(os.path.normpath(folder)):
        raise Refused(f"picture_elsewhere: {given} is outside the folder of the rows: copy it there")
    if not path.is_file():
        raise Refused(f"missing_picture: there is no file {given} beside the rows")
    if not path.stat().st_size:
        raise Refused(f"bad_picture: {given} is empty")
    return given, path
