"""Adapters between the libraries (`synth`, `training`) and the tools (DVC, MLflow, Prefect), and all that reads
settings."""
