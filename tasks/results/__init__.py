"""Answers questions about finished work: what differs between two states, what a model was trained on, why a row was
kept or dropped."""
