"""The model: loading, attention over packed rows, adapters, chat templates, decoding, compiled code for CPUs."""
