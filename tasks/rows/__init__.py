"""Rows that users bring, and preference pairs: read, checked, cleaned, audited, made."""
