"""Imported for its effect, before transformers' model classes: they come without scikit-learn.

transformers imports `sklearn.metrics` where it is installed, for a threshold of assisted generation that nothing here
uses, and MLflow installs it everywhere. With SciPy's statistics that is a sixth of the CPU time until a stage begins.
"""

from importlib import import_module
from unittest.mock import patch

import transformers.utils

with patch.object(transformers.utils, "is_sklearn_available", lambda: False):
    import_module("transformers.generation.candidate_generator")
