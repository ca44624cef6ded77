"""Pictures that a process holds: their names, and their pixels, each once.

The name of a picture is the hash of its content (`synth.types.picture_name`). Messages name pictures, never hold them; who
decodes, draws or reads one from a table adds it to `HELD`, and a vision-language model reads it there (training/model/vision.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from synth.types import picture_name


def picture_key(name: str) -> int:
    """What ids hold of a picture's name, the hash of its content in hexadecimal: the first 50 bits."""
    return int(name[:13], 16) >> 2


def name_of(pixels: np.ndarray) -> str:
    """The name of a picture [H, W, 3] uint8 (`synth.types.picture_name`). Raises ValueError for another shape or
    type."""
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise ValueError(
            f"a picture of shape {tuple(pixels.shape)} and type {pixels.dtype}: it must be [height, width, 3] of uint8 "
            "(convert it to RGB)"
        )
    return picture_name(pixels.shape[0], pixels.shape[1], np.ascontiguousarray(pixels).tobytes())


@dataclass
class Pictures:
    """Pixels by the key in ids, each picture once: uint8 [H, W, 3], read-only."""

    held: dict[int, np.ndarray] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.held)

    def add(self, pixels: np.ndarray) -> str:
        """Keep a picture; returns its name. Raises ValueError for two pictures of the same key."""
        name = name_of(pixels)
        key = picture_key(name)
        if self.names.setdefault(key, name) != name:
            raise ValueError(f"two pictures share the first 50 bits of their names, {name[:13]}: leave one out")
        if key not in self.held:
            self.held[key] = np.array(pixels, order="C")
            self.held[key].flags.writeable = False
        return name

    def of(self, name: str) -> np.ndarray:
        """The pixels of the picture of this name. Raises LookupError if it is not held."""
        return self[picture_key(name)]

    def __getitem__(self, key: int) -> np.ndarray:
        if key not in self.held:
            raise LookupError(
                f"a row shows the picture {key:x}, and this process holds {len(self)} others: load the pictures that belong to "
                "the problems (HELD.add of synth/pictures.py)"
            )
        return self.held[key]


HELD = Pictures()
