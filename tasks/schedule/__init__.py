"""The Prefect server of a project and what is deployed on it."""
