"""Models behind the libraries: samplers, endpoints, judges, reward models and the tools that an environment is
given."""
