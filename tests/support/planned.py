"""What a benchmark asks of a stage, against the plan that is made of it."""


def holds(planned: dict, knobs: dict) -> bool:
    """Does the plan hold each of `knobs`? Of nested knobs those that are given; a piece is compared whole."""
    for knob, value in knobs.items():
        actual = planned[knob]
        if isinstance(value, dict) and "piece" not in value:
            actual = {k: actual[k] for k in value}
        if actual != value:
            return False
    return True
