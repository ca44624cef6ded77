"""Entry points: one flow per stage, the command line, recipes, profiles, and the template of a project."""

import os

if os.environ.get("ESPALIER_NATIVE") == "0":
    from tasks.runtime.train_loop import without_compiled

    without_compiled("ESPALIER_NATIVE is 0")
