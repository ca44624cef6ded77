"""The GPU kernels without a GPU: in Triton's interpreter, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest


def test_kernels_agree_with_torch_in_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed: `pip install triton==3.9.0` (Linux) runs the kernels' tests")
    script = Path(__file__).with_name("interpreted_kernels.py")
    done = subprocess.run([sys.executable, str(script)], cwd=script.parents[1], capture_output=True, text=True, timeout=300, check=False,
                          env={"PYTHONPATH": str(script.parents[1]), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 20, done.stdout
