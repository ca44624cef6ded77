"""Reinforcement learning: the path from problems to advantages and packed batches, and the pieces that a recipe
chooses."""
