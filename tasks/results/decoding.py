"""A decoder with the inputs that a project has for it: `espalier chat --decoder` and `espalier serve --decoder`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from synth.types import PreferencePair
from tasks.evaluation.decoding import decoding
from tasks.planning import plan
from tasks.planning.pieces import bind
from tasks.runtime.stage import REMEDY
from tasks.storage import commit, tables
from training.decode import Account, DecodingSampler, ServedDecoder
from training.model.render import Renderer


def decoder_of(
    root: Path,
    settings: Mapping[str, Any],
    name: str,
    sampler: Any,
    renderer: Renderer,
    *,
    forward_tokens: int,
    device: str,
) -> DecodingSampler:
    """The decoder, which replaces `sampler`, with the knobs that `evaluate.decoders` gives it in `settings` (parameters of
    the stage evaluate). The reward model is artifacts/reward, pairs are those of artifacts/clean, the reference is artifacts/sft. Raises UserError if the
    decoder is unknown or lacks something."""
    bound = _bound(settings, name)
    reward, pairs = root / "artifacts" / "reward", root / "artifacts" / "clean" / "pairs.parquet"
    rewards = None
    if "reward_model" in bound.needs and (reward / "model").is_dir():
        from tasks.models.reward_model import RewardModel

        commit.check(reward, "model", remedy=REMEDY)
        word = json.loads((reward / "card.json").read_text(encoding="utf-8")).get("verdict", "")
        rewards = RewardModel(reward / "model", word, device=device).of_ids
    before = root / "artifacts" / "sft"
    reference = None
    if "reference" in bound.needs and (before / "model").is_dir():
        from training.model.model import load_model
        from training.rollout.torch_sampler import TorchSampler

        commit.check(before, "model", remedy=REMEDY)
        reference = lambda: TorchSampler(load_model(before / "model", device=device)[0], renderer.end_id)  # noqa: E731
    train = (p for p in tables.read(pairs, PreferencePair) if p.split == "train") if pairs.exists() else ()
    return decoding(
        bound,
        sampler,
        renderer,
        rewards=rewards,
        pairs=lambda: list(train),
        forward_tokens=forward_tokens,
        reference=reference,
    )


def serving(root: Path, name: str, budget: int, *, say: Callable[[str], None] = print) -> ServedDecoder:
    """The decoder as `espalier serve` takes it. say: is told once where it makes compiled layers step aside. Raises UserError
    if it is unknown; `around` does where it lacks something."""
    settings = plan.plans(root, changed=lambda params: params)["evaluate"]["params"]
    bound = _bound(settings, name)
    temperature = 0.0 if name == "greedy" else bound.keywords.get("temperature")

    def around(sampler: Any, renderer: Renderer, device: str) -> DecodingSampler:
        decoding = decoder_of(root, settings, name, sampler, renderer, forward_tokens=budget, device=device)
        decoding.hear = _stepped_aside(name, sampler, say)
        return decoding

    return ServedDecoder(name=name, budget=budget, temperature=temperature, around=around)


def _stepped_aside(name: str, sampler: Any, say: Callable[[str], None]) -> Callable[[Account], None]:
    told = False

    def hear(account: Account) -> None:
        nonlocal told
        compiled = getattr(sampler, "cached", None) is not None  # known from its first session on
        if compiled and account.path == "own layers" and not told:
            told = True
            say(
                f"the decoder {name} changes what the layers compute: they are the model's own, and the compiled ones step aside"
            )

    return hear


def _bound(settings: Mapping[str, Any], name: str) -> Any:
    listed = {d["piece"]: d for d in settings["decoders"]}
    return bind("decode", listed.get(name, {"piece": name}))
