"""What vLLM's worker is given beside its own: weights that come with a version, and the version to be asked for.

vLLM makes it a base of its worker (`worker_extension_cls`), so its `reload_weights` is there. That is the one way that
leaves a CPU build whole: `model.load_weights` meets linear layers that were packed, fails, and leaves half of the old
weights. It reloads the layers whose names it is given, and a head that is tied to the embedding is a layer with a
packed copy of its own: it has to be given by name, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Versioned:
    """version: of the weights, None while they are exchanged and after an exchange that failed."""

    reload_weights: Any  # vLLM's own
    espalier_held: int | None = None

    def espalier_load(self, version: int, folder: str = "", weights: Iterable[tuple[str, Any]] = ()) -> int:
        """Take the weights of a folder in Hugging Face layout, or (name, tensor) pairs, tied ones by all of their
        names, and call them `version`."""
        self.espalier_held = None
        if folder:
            self.reload_weights(weights_path=folder)
        else:
            self.reload_weights(weights_iterator=iter(weights))
        self.espalier_held = int(version)
        return self.espalier_held

    def espalier_hold(self, version: int) -> int:
        """Call what it has `version`: adapters were exchanged, which vLLM does by itself."""
        self.espalier_held = int(version)
        return self.espalier_held

    def espalier_version(self) -> int | None:
        return self.espalier_held
