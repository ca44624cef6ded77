"""Thoughts, or rewrites of a question, ranked by how often the answers after them are right.

RAR2, 2025, "Retrieval-Augmented Medical Reasoning via Thought-Driven Retrieval" (arXiv 2509.22713): thoughts are pairs
by the correctness of what follows. SynRewrite, 2025, "Can Synthetic Query Rewrites Capture User Intent Better than
Humans in Retrieval-Augmented Generation?" (arXiv 2509.22325): so are rewrites, with the least gap `min_gap`.

    worth of a text = right answers / answers, each given behind it     chosen: the best, rejected: the worst (the first
    drawn of equals)

Retrieval, if any, is done by `generate`: it may answer with documents for the given text. Read from both abstracts; the
pairing is our reading.
"""

from __future__ import annotations

from synth.preferences.makers._made import ask, made, quarantined, right
from synth.types import Generate, Message, PreferencePair, Problem, Quarantined

WHAT = "What would one have to know to answer this? Think of it first, and do not answer yet."


def by_utility(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    instruction: str = WHAT,
    texts: int = 8,
    answers: int = 4,
    min_gap: float = 0.1,
) -> PreferencePair | Quarantined:
    """Quarantined as unscorable, or no_gap where the best is worth less than `min_gap` more than the worst."""
    prompt = (*problem.prompt[:-1], Message(role="user", content=f"{problem.question}\n{instruction}"))
    drawn = ask(generate, prompt, texts, seed, "by_utility", problem.id, index)
    worth = []
    for i, text in enumerate(drawn):
        then = (*prompt, Message(role="assistant", content=text), Message(role="user", content="Now answer."))
        verdicts = [right(problem, t) for t in ask(generate, then, answers, seed, "by_utility", problem.id, index, i)]
        scored = [float(v) for v in verdicts if v is not None]
        if not scored:
            return quarantined(problem, index, "unscorable", f"no answer behind {text!r} can be scored")
        worth.append(sum(scored) / len(scored))
    best, worst = max(range(texts), key=lambda i: worth[i]), min(range(texts), key=lambda i: worth[i])
    if worth[best] - worth[worst] < max(min_gap, 1e-9):
        return quarantined(problem, index, "no_gap", f"the texts are worth {worth[worst]:.2f} to {worth[best]:.2f}")
    margin = worth[best] - worth[worst]
    return made(
        problem,
        "by_utility",
        drawn[best],
        drawn[worst],
        margin=margin,
        prompt=prompt,
        worth=[worth[best], worth[worst]],
    )
