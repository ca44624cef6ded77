"""Questions and models as a person or an environment meets them: the knowledge base, its search tool, the families, a conversation."""
