"""Models as the libraries see them: samplers, endpoints, judges, reward models and the tools that an environment is
given."""
