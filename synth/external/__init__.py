"""Environments of other people, each in a process of its own that `parent` asks line by line.

`child.py` is that process. It runs under an interpreter of the user's choice (the knob `python`), so it and the files of
`adapters` use nothing but the standard library and the package that they adapt. `adapters/<name>.py` holds a function of
its name, whose keyword-only arguments are the options, and which gives an object with

    turns       whether its problems are episodes (else one answer is scored)
    name        of the problems, for reports
    version     of what makes them
    actions     of an episode, where there are few (may be left out)
    remote      the address of the server that answers, where it is none of this process (may be left out)
    problem(seed, split, index) -> {"prompt", "answer", "item"} and, where the text does not tell problems apart, "root";
                None where there are no more. `item` is JSON: all that scoring needs (may be left out with turns, where an
                item is a seed: the problem is then what its episode says first)
    score(item, answer) -> a number, or (number, {part: number})        without turns
    episode(item) -> an object with start() -> messages and step(text) -> (messages, over, reward)    with turns

An adapter raises `ValueError` with one sentence for options that it cannot honour.
"""
