"""HTTP services: the sessions of programs, the OpenAI-compatible API, the training API."""
