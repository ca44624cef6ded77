"""The knowledge base for users and stages: opening, guessing sources, describing, searching, serving."""
