"""One optimizer step: rows are packed, split by a token budget, summed up and divided once; and the loop of rounds."""
