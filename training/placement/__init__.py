"""Which processes run which call of a step: `f(calls, devices, move, rng, *, knobs) -> Plan` (training/placement/_graph.py)."""
