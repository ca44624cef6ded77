"""HTML and SVG, self-contained."""
