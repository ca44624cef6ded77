"""Self-play against the ledger: the loop, who proposes, what the trained model solves."""
