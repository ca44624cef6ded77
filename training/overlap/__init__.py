"""How far sampling runs ahead of learning: `f(*, knobs) -> Mode` (training/rollout/asynchronous.py), the knob `overlap` of `rl`."""
