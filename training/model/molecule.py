"""A policy that writes molecules: the decoder of a VAE, conditioned on a protein by adding the latent of another VAE.

Born et al. 2021, "PaccMann^RL on SARS-CoV-2" (arXiv 2005.13285); Kingma and Welling 2014, "Auto-Encoding Variational
Bayes" (arXiv 1312.6114).

    z = z_molecule + mean of q(z | protein)         logits of the next symbol = decoder(z, symbols so far)

The two VAEs are fitted apart, so before RL the protein moves the molecules but does not say which are good. The
encoder of proteins stays as it was fitted; RL trains the decoder alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn


def _layers(into: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(into, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out)
    )


class MoleculePolicy(nn.Module):
    """observation [n, protein + latent + symbols so far] -> logits [n, actions]."""

    model_type = "espalier_molecules"
    continuous = False

    def __init__(
        self, *, observation: int, actions: int, protein: int, latent: int, hidden: int = 128, seed: int = 0
    ) -> None:
        super().__init__()
        self.made = {
            "observation": observation,
            "actions": actions,
            "protein": protein,
            "latent": latent,
            "hidden": hidden,
        }
        self._protein, self._latent = protein, latent
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed % 2**63)
            self.encoder = _layers(protein, hidden, 2 * latent).requires_grad_(False)
            self.decoder = _layers(observation - protein, hidden, actions)

    def forward(self, observation: Tensor) -> Tensor:
        protein, z, so_far = observation.split(
            [self._protein, self._latent, observation.shape[1] - self._protein - self._latent], 1
        )
        return self.decoder(torch.cat([z + self.encoder(protein)[:, : self._latent], so_far], 1))

    def normal(self, out: Tensor, temperature: float) -> torch.distributions.Normal:
        raise TypeError("symbols are chosen from a list")


def fit(
    model: MoleculePolicy,
    examples: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]],
    *,
    steps: int,
    rows: int,
    lr: float,
    seed: int,
    pool: int = 4096,
    beta: float = 0.1,
) -> float:
    """Warm start of both VAEs by Adam. The encoder of molecules and the decoder of proteins are used here alone. Returns the last negative
    log-likelihood of a symbol, in nats.

    Symbols after [End] (0) do not count; a row is read at one place, drawn anew at each step."""
    rng, latent = np.random.default_rng(seed), model.made["latent"]
    symbols, proteins = (torch.from_numpy(x) for x in examples(pool, rng))
    proteins, (n, most), kinds = proteins.float(), symbols.shape, model.made["actions"]
    whole = nn.functional.one_hot(symbols, kinds + 1).float()
    lengths = torch.where((symbols == 0).any(1), (symbols == 0).int().argmax(1) + 1, most)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        reads = _layers(most * (kinds + 1), model.made["hidden"], 2 * latent)
        writes = _layers(latent, model.made["hidden"], proteins.shape[1])
    model.encoder.requires_grad_(True)
    optimizer = torch.optim.Adam([*model.parameters(), *reads.parameters(), *writes.parameters()], lr=lr)
    none = nn.functional.one_hot(torch.tensor(kinds), kinds + 1).float()
    nll = torch.zeros(())
    for _ in range(steps):
        at = torch.from_numpy(rng.integers(n, size=rows))
        noise = torch.from_numpy(rng.standard_normal((2, rows, latent))).float()
        place = torch.from_numpy((rng.random(rows) * lengths[at].numpy()).astype(np.int64))
        mean, log_variance = reads(whole[at].flatten(1)).chunk(2, 1)
        z = mean + noise[0] * (log_variance / 2).exp()
        so_far = torch.where((torch.arange(most) < place[:, None])[:, :, None], whole[at], none)
        logits = model.decoder(torch.cat([z, so_far.flatten(1)], 1))
        nll = nn.functional.cross_entropy(logits, symbols[at, place])
        p_mean, p_log_variance = model.encoder(proteins[at]).chunk(2, 1)
        told = writes(p_mean + noise[1] * (p_log_variance / 2).exp())
        again = nn.functional.binary_cross_entropy_with_logits(told, proteins[at], reduction="none").sum(1).mean()
        prior = sum(
            ((m**2 + v.exp() - 1 - v) / 2).sum(1).mean() for m, v in ((mean, log_variance), (p_mean, p_log_variance))
        )
        optimizer.zero_grad(set_to_none=True)
        (nll + again / 10 + beta / 10 * prior).backward()
        optimizer.step()
    model.encoder.requires_grad_(False)
    return float(nll.detach())
