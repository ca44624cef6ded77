"""Vectors of short texts: from a table of static embeddings, or from a sentence-embedding model in a folder.

    embedder("static")     the mean of the table's rows of a text's tokens. The table is that of WordLlama (32,000 tokens, 256
                           dimensions), read from the files of the package `wordllama`; none of its code runs, nothing is
                           downloaded
    embedder(FOLDER)       a model of transformers: the mean of the last hidden states over the tokens of the text
                           (Reimers and Gurevych 2019, arXiv:1908.10084)

Both give vectors of length 1, so that a product is a cosine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

STATIC = "static"
_TABLE, _TOKENIZER = "weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"
_BATCH, _TOKENS = 32, 512  # texts that a model reads together, and the most tokens of one


class Embedder(Protocol):
    """digest: of the files that the vectors depend on. batch: texts that are best given together."""

    digest: str
    batch: int

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """[texts, dimensions] float32, each of length 1 (0 for a text without a known token)."""
        ...


def embedder(source: str) -> Embedder:
    """`static`, or the folder of a model. Raises ValueError where there is none."""
    if source == STATIC:
        package = find_spec("wordllama")
        if package is None or not package.submodule_search_locations:
            raise ValueError(
                "static embeddings are read from the package wordllama, which is not installed: pip install 'espalier[embeddings]', or name the folder of a sentence-embedding model"
            )
        return Static(Path(package.submodule_search_locations[0]))
    return Model(Path(source))


class Static:
    """The mean of a table's rows. folder: that of the package. Raises ValueError where a file is missing."""

    batch = 1024

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        table, tokenizer = folder / _TABLE, folder / _TOKENIZER
        try:
            self.digest = _digest([table, tokenizer])
            (rows,) = load_file(table).values()
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{folder} lacks the embeddings of WordLlama ({error}): pip install 'espalier[embeddings]'"
            ) from error
        self._rows = rows.astype(np.float32)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        ids = [e.ids for e in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
        out = np.zeros((len(ids), self._rows.shape[1]), np.float32)
        full = [i for i, some in enumerate(ids) if some]
        if full:
            starts = np.cumsum([0] + [len(ids[i]) for i in full[:-1]])
            flat = np.concatenate([ids[i] for i in full])
            out[full] = np.add.reduceat(self._rows[flat], starts)
        return _of_length_1(out)


class Model:
    """A model of transformers in a folder. Raises ValueError where it cannot be loaded."""

    batch = _BATCH

    def __init__(self, folder: Path) -> None:
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"{folder} is neither {STATIC!r} nor the folder of an embedding model (it has no config.json): name a folder that `save_pretrained` wrote"
            )
        from transformers import AutoModel, AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self._model: Any = AutoModel.from_pretrained(folder, local_files_only=True).float().eval()
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"the embedding model in {folder} could not be loaded: {error}") from error
        self.digest = _digest(p for p in folder.rglob("*") if p.is_file())
        self._longest = min(_TOKENS, getattr(self._model.config, "max_position_embeddings", _TOKENS))
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        import torch

        rows = []
        for i in range(0, len(texts), _BATCH):
            read = self._tokenizer(
                list(texts[i : i + _BATCH]),
                padding=True,
                truncation=True,
                max_length=self._longest,
                return_tensors="pt",
                return_token_type_ids=False,
            )
            with torch.inference_mode():
                hidden = self._model(**read).last_hidden_state
            used = read["attention_mask"][..., None].to(hidden.dtype)
            rows.append(((hidden * used).sum(1) / used.sum(1).clamp(min=1)).numpy())
        return _of_length_1(np.concatenate(rows))


def _of_length_1(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def _digest(files: Any) -> str:
    total = hashlib.sha256()
    for path in sorted(files):
        with path.open("rb") as file:
            total.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()} ".encode())
    return total.hexdigest()
