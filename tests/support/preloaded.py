"""What the processes that `small.begun` forks have in common: everything that a stage imports, and nothing computed.

The server of forks imports this module by its full name from the root of the project: in Python 3.11 it does not know
the paths that pytest adds. Anything that is not imported here, each of some hundreds of children imports anew.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import pandas as pd  # noqa: E402
import pandera.pandas as pa  # noqa: E402
import pytest  # noqa: E402, F401  (main of the processes, which each child imports again)
import transformers.models.qwen3.modeling_qwen3  # noqa: E402, F401

import small  # noqa: E402, F401
from tasks.planning import plan  # noqa: E402, F401
from tasks.runtime import threads, warm  # noqa: E402, F401
from tasks.stages import (  # noqa: E402, F401
    clean,
    demonstrations,
    evaluate,
    kb,
    prefer,
    preferences,
    problems,
    questions,
    report,
    reward,
    rl,
    sft,
)
from tasks.tracking import spool  # noqa: E402, F401

# It imports its checks, and what they need, at the first use.
pa.DataFrameSchema({"x": pa.Column(int)}).validate(pd.DataFrame({"x": [1]}))
