"""Solvers, one file each: `f(*, knobs) -> Solver` (`synth.selfplay.loop`): problems in, texts out."""
