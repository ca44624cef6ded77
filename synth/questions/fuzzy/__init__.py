"""Entity trees with fuzzy clues: a graph of arrays, spans, growth, wording, an oracle that reads pages, and the triples
that others use."""
