"""Self-play that certifies its own problems: propose, certify, attempt, score, reward, update, with everything in a
ledger."""
