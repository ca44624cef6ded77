"""An extension of vLLM's worker: weights that come with a version, and a query for that version.

vLLM makes it a base of its worker (`worker_extension_cls`), so its `reload_weights` is available. Only that method
works on a CPU build: `model.load_weights` fails at linear layers that were packed, and leaves half of the old weights.
`reload_weights` reloads the named layers; a head that is tied to the embedding is a layer with its own packed copy, so
it has to be named too.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open

from training.rollout.transport import (
    Entry,
    Group,
    Sums,
    device_of,
    digest,
    dtype_name,
    libraries,
    opened,
    summing,
    token_digest,
)

SILENT = 1800.0  # seconds without a word of the run that holds a server, after which another may take it over


class Versioned:
    """version: that of the weights; None during an update and after a failed one. A server has a worker for each of its devices, and all
    are asked at once."""

    reload_weights: Any  # vLLM's own, as the next
    model_config: Any
    parallel_config: Any
    rank: int  # among the workers of the server
    device: Any
    espalier_held: int | None = None
    espalier_group: tuple[int, Group] | None = None  # of which run
    espalier_tokens: str | None = None  # digest of its tokenizer, once it was asked for
    espalier_holder: tuple[int, str, float] | None = (
        None  # the run that holds the server, where it runs, when it was heard
    )

    def espalier_load(
        self,
        version: int,
        folder: str = "",
        weights: Iterable[tuple[str, Any]] = (),
        entries: Sequence[Entry] = (),
        handles: Sequence[Sequence[Any]] = (),
        checksum: str = "",
    ) -> dict[str, Any]:
        """Load weights as version `version`, with tied ones under all their names: those of a folder in Hugging Face layout, (name, tensor)
        pairs, those that the learner now sends through the group (`entries`), or its own memory (`handles`). Returns the dtype of the model
        and the checksum of what came; if it is not the `checksum` that was given, or what came is not whole (`failed` says why), the worker
        has no version."""
        self.espalier_held = None
        source: Iterable[tuple[str, Any]] = iter(weights)
        if folder:
            source = _of_folder(Path(folder))
        elif entries:
            if self.espalier_group is None:
                return {"failed": "its worker is in no group with the learner"}
            source = self.espalier_group[1].received(entries)
        elif handles:
            source = opened(handles, self.device)
        sums: Sums = {}
        failed: list[str] = []
        # The iterator ends in place of raising: vLLM has to finish a reload that it began, or the next one begins amid it.
        self.reload_weights(weights_iterator=_ending(summing(source, sums) if checksum else source, failed))
        if failed:
            self.espalier_leave()
            return {"failed": failed[0]}
        got = digest(sums) if checksum else ""
        if got == checksum:
            self.espalier_held = int(version)
        return {"checksum": got, "dtype": dtype_name(self.model_config.dtype)}

    def espalier_hold(self, version: int | None) -> int | None:
        """Set the version to `version` after vLLM has replaced adapters by itself, None before it does."""
        self.espalier_held = None if version is None else int(version)
        return self.espalier_held

    def espalier_version(self, run: int = 0) -> int | None:
        """The version. run: the run that asks, if it is one: it is then heard."""
        if self.espalier_holder is not None and self.espalier_holder[0] == run:
            self.espalier_holder = (*self.espalier_holder[:2], time.monotonic())
        return self.espalier_held

    def espalier_claim(self, run: int, who: str) -> dict[str, Any]:
        """Let `run` hold this server, unless another does that was heard in the last SILENT seconds, or is in a group with it now: then
        returns which (`espalier_held_by`). who: machine and folder of the run, by which one that is begun again is known."""
        other = self.espalier_held_by()
        if other is not None and other["run"] != run and other["who"] != who and other["silent"] < SILENT:
            return other
        self.espalier_holder = run, who, time.monotonic()
        return {}

    def espalier_free(self, run: int) -> dict[str, Any]:
        """The run has ended."""
        if self.espalier_holder is not None and self.espalier_holder[0] == run:
            self.espalier_holder = None
        return {}

    def espalier_held_by(self) -> dict[str, Any] | None:
        """The run that holds this server: `run`, `who`, and for how many seconds it was not heard (`silent`). None without one, or if it was
        in a group with this server and is gone."""
        grouped = None if self.espalier_group is None else self.espalier_group[0]
        if self.espalier_group is not None and not self.espalier_group[1].alive():
            self.espalier_leave()
            self.espalier_free(grouped or 0)
        if self.espalier_holder is None:
            return None
        run, who, heard = self.espalier_holder
        silent = 0.0 if self.espalier_group is not None and grouped == run else time.monotonic() - heard
        return {"run": run, "who": who, "silent": silent}

    def espalier_join(
        self, run: int, host: str, port: int, first: int, size: int, backend: str, limit: float, bucket: int
    ) -> dict[str, Any]:
        """Meet the learner of a run and the workers of its other servers. first: the rank of this server's first worker."""
        self.espalier_leave()
        try:
            group = Group((host, port), first + self.rank, size, backend, self.device, limit, bucket)
        except (RuntimeError, OSError) as e:
            return {"failed": _line(e)}
        self.espalier_group = run, group
        return {}

    def espalier_leave(self) -> dict[str, Any]:
        group, self.espalier_group = self.espalier_group, None
        if group is not None:
            group[1].close()
        return {}

    def espalier_about(self) -> dict[str, Any]:
        """The dtype and the sizes of the model and a digest of the `tokenizer` ("" if it cannot be read), by which a run knows whether the
        server has the model that it wants; for
        how many adapters at once and up to which rank it has room (0: none); and what decides by which ways weights can come:
        the machine, the device, how many workers and whole copies of the model, and libraries; and the run that holds it (`holder`)."""
        shape = self.model_config.hf_text_config
        sizes = {k: int(getattr(shape, k)) for k in ("vocab_size", "hidden_size", "num_hidden_layers")}
        lora = getattr(self, "lora_config", None)
        room = {k: int(getattr(lora, k, 0)) for k in ("max_loras", "max_lora_rank")}
        ways = {
            "machine": socket.gethostname(),
            "device": str(self.device).partition(":")[0],
            "device_id": device_of(self.device),
            "workers": int(self.parallel_config.world_size),
            "copies": int(self.parallel_config.data_parallel_size),
            "libraries": libraries(),
            "holder": self.espalier_held_by(),
        }
        return {
            "dtype": dtype_name(self.model_config.dtype),
            "tokenizer": self._tokens(),
            "max_model_len": int(self.model_config.max_model_len),
            **sizes,
            **room,
            **ways,
        }

    def _tokens(self) -> str:
        if self.espalier_tokens is None:
            from transformers import AutoTokenizer

            of, trusted = self.model_config.tokenizer, bool(self.model_config.trust_remote_code)
            try:
                self.espalier_tokens = token_digest(AutoTokenizer.from_pretrained(of, trust_remote_code=trusted))
            except (OSError, ValueError):
                self.espalier_tokens = ""
        return self.espalier_tokens


def _line(e: BaseException) -> str:
    return (str(e).splitlines() or [type(e).__name__])[0]


def _of_folder(folder: Path) -> Iterator[tuple[str, Any]]:
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (no mapping)
                yield name, weights.get_tensor(name)


def _ending(weights: Iterable[tuple[str, Any]], failed: list[str]) -> Iterator[tuple[str, Any]]:
    """The weights, up to where no more come."""
    try:
        yield from weights
    except (RuntimeError, OSError) as e:  # TimeoutError is an OSError
        failed.append(_line(e))
