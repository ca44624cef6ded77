"""What answers over HTTP: the guard of every local service, the sessions of programs, the OpenAI-compatible API."""
