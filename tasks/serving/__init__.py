"""`espalier serve`: a model behind an OpenAI-compatible endpoint of this machine."""
