"""Proposers, one file each: `f(view, rng, n, *, knobs) -> n specs as JSON text` (`synth.selfplay.spec`), one for each wanted cell of the
view.

A proposer is a program or a model. Whatever it says is certified before anybody attempts it. What must last from round to round it keeps in
`view.state`.
"""
