"""Rollouts: playing problems in their environments, and the samplers that write the model's turns."""
