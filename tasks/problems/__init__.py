"""Where problems come from: trees of questions grown and proved again, and self-play."""
