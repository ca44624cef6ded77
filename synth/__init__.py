"""Data: sources, knowledge bases, makers, verifiers, cleaners. It uses models only through the protocol
`synth.types.Generate`."""
