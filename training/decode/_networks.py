"""What the small networks of decoders share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, torch draws first weights from this seed; the generator of everything else is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        yield
