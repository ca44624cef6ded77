"""From hidden states to per-token log-probs and entropies without a tokens x vocabulary tensor."""
