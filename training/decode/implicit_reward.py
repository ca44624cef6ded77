"""The draw of the model before preference training that preference training has made likelier by most: a ranker without a head.

"Automated Prompt Generation for Creative and Counterfactual Text-to-image Synthesis" 2025 (arXiv 2509.21375); read in the abstract,
how candidates are drawn and ranked is our reading. The implicit reward is that of Rafailov et al. 2023 (DPO, arXiv 2305.18290):

    y_1 .. y_n ~ pi_ref(. | x)          y = argmax_i  beta (log pi(y_i | x) - log pi_ref(y_i | x))

pi is the model that preference training made, pi_ref the one that it began with (the stage sft). rank_by: "policy" takes the candidate
that is likeliest under pi, and does not read pi_ref. Of equal candidates the one drawn first wins.

Both models read the prompt and each candidate behind it, paid from the same budget: where that has no room for two candidates, one is drawn
and not ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from synth.types import seed_for
from training.decode import Account, Ask, Decoded, Draw, Engine

NEEDS = {"reference"}


def implicit_reward(
    engine: Engine,
    asks: Sequence[Ask],
    fitted: Any,
    *,
    n: int = 8,
    beta: float = 0.1,
    rank_by: Literal["implicit_reward", "policy"] = "implicit_reward",
) -> list[Decoded]:
    if n < 1 or beta <= 0:
        raise ValueError(f"n is {n} and beta {beta}: n candidates are 1 or more, beta is above 0")
    if (rewriter := engine.reference) is None:
        raise ValueError(
            "this decoder ranks the answers of the model before preference training, and there is none: run the stage sft, or take "
            "a decoder that needs none, such as majority"
        )
    engine.token_by_token("reads log-probs of tokens")
    judges = [engine, rewriter] if rank_by == "implicit_reward" else [engine]
    out = []
    for ask in asks:
        account = Account(limit=ask.forward_tokens)
        longest = ask.max_tokens
        each = longest + len(judges) * (len(ask.prompt) + longest)  # at most: prompts may be read once for all
        many = n if not ask.forward_tokens else int(min(n, (account.left - len(ask.prompt)) // each))
        if many < 2:
            many, longest = 1, rewriter.room(ask, account)
        draws = [
            Draw(account=account, prompt=ask.prompt, seed=seed_for(ask.seed, "draw", j), max_tokens=longest)
            for j in range(many)
        ]
        segments = rewriter.sample(draws)
        place = 0
        if many > 1:
            logp = [engine_.read_logp(account, [(ask.prompt, s.ids) for s in segments]) for engine_ in judges]
            rewards = beta * (logp[0] - logp[1]) if len(logp) > 1 else logp[0]
            place = int(np.argmax(rewards))
            account.events.append(f"rank {rewards[place]:.3f} is the highest of {many}, the mean {rewards.mean():.3f}")
        out.append(Decoded(segment=segments[place], account=account))
    return out
