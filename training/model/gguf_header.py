"""The header of a GGUF file, read without its weights."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Header:
    """`values` by the name of their field, and the shapes of the tensors."""

    values: Mapping[str, Any]  # of gguf: each has `contents()`
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def architecture(self) -> str:
        return self.get("general.architecture", "")

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field."""
        return self.values[name].contents() if name in self.values else default

    def own(self, name: str, default: Any = None) -> Any:
        """The value of a field of the architecture: "block_count", "attention.head_count", ..."""
        return self.get(f"{self.architecture}.{name}", default)


def gguf_of(path: str | Path) -> Path | None:
    """The GGUF file that a path names, or the only model file of a folder; None if there is none."""
    place = Path(path)
    if place.suffix.lower() == ".gguf" and place.is_file():
        return place
    files = sorted(place.glob("*.gguf")) if place.is_dir() and not (place / "config.json").exists() else []
    return files[0] if len(files) == 1 else None


def read_header(file: Path) -> Header:
    """Raises ValueError for a file that is not a complete GGUF file, and ImportError without the package gguf."""
    from gguf import GGUFReader

    class Reader(GGUFReader):
        """Slices a plain array: the vocabulary is read string by string, and a slice of a memmap takes several times
        as long."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    try:
        reader = Reader(file)
    except (ValueError, OSError, IndexError, KeyError, struct.error) as e:
        raise ValueError(
            f"{file} is no whole GGUF file ({e}): the download broke off or the file is damaged; fetch it again"
        ) from e
    return Header(values=reader.fields, shapes={t.name: tuple(int(n) for n in t.shape) for t in reader.tensors})


def config_of(file: Path) -> Any:
    """The configuration that transformers makes from a file, plus the width of its heads, which transformers does not
    read for every architecture. Raises as `read_header` does."""
    from transformers import AutoConfig

    header = read_header(file)
    config = AutoConfig.from_pretrained(str(file.parent), gguf_file=file.name)
    if head_dim := header.own("attention.key_length"):
        config.head_dim = int(head_dim)
    return config
