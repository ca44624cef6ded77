"""Preference data: makers of pairs with planted errors or noise, judges, cleaners and what runs them."""
