"""Runs code that a model wrote in a separate process without files or network, and with limits on time and memory."""
