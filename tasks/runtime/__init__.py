"""Runs a stage: its work folder, progress, the training loop, processes, how it ends, DVC and Prefect."""
