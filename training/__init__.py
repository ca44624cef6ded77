"""Learning: rollouts, losses made of pieces, one learner, one driver of rounds. Of `synth` it knows `types` and
`verify`."""
