"""Data: sources, knowledge bases, makers, verifiers, cleaners. Of models it knows the protocol `synth.types.Generate`
alone."""
