"""Run as a program, `python call.py module:name`: calls a user's Python function with the problem read from standard
input, and writes the result as one line of JSON. What the function prints goes to standard error."""

import importlib
import json
import os
import sys


def main() -> None:
    sys.path[0] = os.getcwd()  # in the place of this file's folder, whose names are none of the user's
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    result = function(
        base_url=os.environ["OPENAI_BASE_URL"], key=os.environ["OPENAI_API_KEY"], problem=json.load(sys.stdin)
    )
    if not isinstance(result, dict):
        result = {"answer": None if result is None else str(result)}
    out.write(json.dumps(result, ensure_ascii=False) + "\n")
    out.close()


if __name__ == "__main__":
    main()
