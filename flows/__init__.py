"""What is started: one flow per stage, the command line, recipes, profiles, and the template of a project."""
