"""What a person asks of finished work: what differs between two states, what a model was made of, why a row was kept or
dropped."""
