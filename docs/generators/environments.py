"""docs/examples/environments.md: three worked examples of each environment that is played with others or with a checker.
`make environments` writes it; a test asserts that the committed page is the generated one.
"""

from __future__ import annotations

from tasks.core.paths import CODE as ROOT
from tasks.evaluation.env_examples import lines

PAGE = ROOT / "docs" / "examples" / "environments.md"
SHOWN = {
    "assemble": "A pipeline of typed tools, one at a time ([OpenAGI](../../flows/recipes/library/openagi-rltf.yaml)). The right way says the "
    "reference; the wrong one writes in capitals and stops.",
    "corridor": "A corridor shared with a partner who keeps to a rule ([LLM-Coordination](../../flows/recipes/library/llm-coordination.yaml)). "
    "The right way takes the fewest steps; who only stays waits for the partner, or for ever.",
    "home": "An assistant at home ([ProPerSim](../../flows/recipes/library/propersim.yaml)). The right way is what the person rates highest at "
    "that moment, the wrong one what they rate lowest.",
    "goods": "Agents who answer one after another and share what they contribute ([MAC-SPGG](../../flows/recipes/library/mac-spgg.yaml)).",
    "retry": "A proof is checked where it is written, and submitted again within a limit ([Leanabell](../../flows/recipes/library/leanabell-prover-v2.yaml)). "
    "The right way slips once, reads what the checker says, and repairs the step; the wrong one submits the same proof again.",
    "team": "Rooms, a kitchen and cards, each with a partner who keeps to a rule ([LLM-Coordination](../../flows/recipes/library/llm-coordination.yaml)).",
    "offers": "Coins that melt, shared by offers in turn with a partner who plays the equilibrium ([Recon](../../flows/recipes/library/recon-economist.yaml)). "
    "The right way offers what the other would keep in the next round, and accepts; the wrong one offers nothing and refuses.",
    "overseen": "Calls that a second role judges ([RL Tango](../../flows/recipes/library/rl-tango.yaml)).",
    "reader": "A text read a few sentences at a time, with a memory ([ReMemR1](../../flows/recipes/library/rememr1.yaml)).",
    "wait": "An answer may be changed when the cue comes.",
}


def page() -> str:
    """The page, from episodes that are played now."""
    out = [
        "# Examples of environments",
        "",
        "Which question this page answers: what does an episode look like, and what is it paid?",
        "",
        "`espalier env show NAME` prints three for every environment; these are some. In each the same problem is played in a right and in "
        "a wrong way, by programs that know the rules. `told` is what the environment said: the policy reads it, and it is masked in the loss, "
        "which is on the lines of `model` alone.",
    ]
    for name, about in SHOWN.items():
        out += ["", f"## {name}", "", about, "", "```text", *lines(name), "```"]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: written")
