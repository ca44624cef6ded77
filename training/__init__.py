"""Learning: rollouts, losses made of pieces, one learner, one driver of rounds. It imports only `types` and `verify` of
`synth`."""
