"""Makers of preference pairs: `f(seed, problem, index, generate, *, knobs) -> PreferencePair | Quarantined`, one file each.

Pair `index` of a problem follows from the arguments alone (and from what `generate` answers to the seeds that it is given). `generate` is a
source of text (`synth.types.Generate`); a conversation that ends with the assistant's message is to be continued. `synth/make/flawed.py` is
one without a model. What a maker claims of its two sides is confirmed by the problem's verifier, or the pair is set aside with a reason.
"""
