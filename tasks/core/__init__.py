"""The lowest layer: errors as sentences, paths, and text that is safe to print on a terminal."""
