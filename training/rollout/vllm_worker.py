"""An extension of vLLM's worker: weights that come with a version, and a query for that version.

vLLM makes it a base of its worker (`worker_extension_cls`), so its `reload_weights` is available. Only that method
works on a CPU build: `model.load_weights` fails at linear layers that were packed, and leaves half of the old weights.
`reload_weights` reloads the named layers; a head that is tied to the embedding is a layer with its own packed copy, so
it has to be named too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Versioned:
    """version: that of the weights; None during an update and after a failed one."""

    reload_weights: Any  # vLLM's own, as the next
    model_config: Any
    espalier_held: int | None = None

    def espalier_load(self, version: int, folder: str = "", weights: Iterable[tuple[str, Any]] = ()) -> int:
        """Load the weights of a folder in Hugging Face layout, or of (name, tensor) pairs, with tied ones under all
        their names, as version `version`."""
        self.espalier_held = None
        if folder:
            self.reload_weights(weights_path=folder)
        else:
            self.reload_weights(weights_iterator=iter(weights))
        self.espalier_held = int(version)
        return self.espalier_held

    def espalier_hold(self, version: int | None) -> int | None:
        """Set the version to `version` after vLLM has replaced adapters by itself, None before it does."""
        self.espalier_held = None if version is None else int(version)
        return self.espalier_held

    def espalier_version(self) -> int | None:
        return self.espalier_held

    def espalier_about(self) -> dict[str, Any]:
        """The dtype and the sizes of the model, by which a run knows whether the server has the model that it wants, and
        for how many adapters at once and up to which rank it has room (0: none)."""
        shape = self.model_config.hf_text_config
        sizes = {k: int(getattr(shape, k)) for k in ("vocab_size", "hidden_size", "num_hidden_layers")}
        dtype = str(self.model_config.dtype).removeprefix("torch.")
        lora = getattr(self, "lora_config", None)
        room = {k: int(getattr(lora, k, 0)) for k in ("max_loras", "max_lora_rank")}
        return {"dtype": dtype, "max_model_len": int(self.model_config.max_model_len), **sizes, **room}
