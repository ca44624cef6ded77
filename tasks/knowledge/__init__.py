"""The knowledge base as a person or a stage meets it: opened, guessed, described, searched, served on a port."""
