"""Environments of other people, each in a separate process that exchanges lines with `parent`.

`child.py` is that process. It runs under an interpreter of the user's choice (the knob `python`), so it and the files
of `adapters` use only the standard library and the package that they adapt. `adapters/<name>.py` holds a function of
its name, whose keyword-only arguments are the options, and which returns an object with

    turns       whether its problems are episodes (else one answer is scored)
    name        of the problems, for reports
    version     of the package that makes them
    actions     of an episode, if there are few (optional)
    remote      the address of the server that answers, if it is not in this process (optional)
    problem(seed, split, index) -> {"prompt", "answer", "item"} and, if texts do not distinguish problems, "root"; None
                if there are no more. `item` is JSON with all that scoring needs (optional with turns, where an item is
                a seed: the problem is then the first message of its episode)
    score(item, answer) -> a number, or (number, {part: number})        without turns
    episode(item) -> an object with start() -> messages and step(text) -> (messages, over, reward)    with turns

An adapter raises `ValueError` with one sentence for options that it does not support.
"""
