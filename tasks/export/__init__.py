"""Models on their way out: to folders and files that other programs load, each checked by reading it back."""
