"""From rows of samples to metrics with intervals: test sets, measurement, the outcome of a comparison."""
