"""The search engine over a knowledge base, and searchers that answer questions without a model."""
