"""From params.yaml, a recipe and signatures to every knob of every stage, and the registry of pieces that they name."""
