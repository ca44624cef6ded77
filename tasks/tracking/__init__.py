"""The spool of events, its shipping to MLflow, and the registry of models."""
