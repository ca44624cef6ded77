"""Knowledge bases: sources are read, texts understood, facts checked and kept as entities, relations and facts."""
