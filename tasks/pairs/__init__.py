"""A user's own preference pairs: read, rated, audited, cleaned, made by a model."""
