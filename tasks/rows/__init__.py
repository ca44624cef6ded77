"""The user's own rows, and preference pairs: reads, checks, cleans, audits and makes them."""
