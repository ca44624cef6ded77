"""Self-play with certified problems: propose, certify, attempt, score, reward, update, all recorded in a ledger."""
