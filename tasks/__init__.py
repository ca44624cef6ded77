"""Adapters between the libraries (`synth`, `training`) and the tools (DVC, MLflow, Prefect), and everything that reads
settings."""
