"""Growing and verifying questions from the command line."""
