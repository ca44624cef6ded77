"""Questions grown from a knowledge base, each with a proof: patterns, wording, growth, proof and the second proof."""
