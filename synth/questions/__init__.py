"""Questions grown from a knowledge base with a proof of each: patterns, wording, growth, proof and the second proof."""
