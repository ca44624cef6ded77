"""Resolves params.yaml, a recipe and signatures into every knob of every stage; and the registry of pieces."""
