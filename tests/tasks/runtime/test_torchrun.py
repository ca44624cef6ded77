"""torchrun as a launcher of stages: exit codes, and the bytes of processes that it starts."""

import os
import subprocess
import sys

import pytest
import small

CODE = small.Path(small.__file__).parents[2]


def torchrun(root, *args, code=0, module="tasks.runtime.torchrun", **env):
    """What the processes said on stderr."""
    command = [sys.executable, "-P", "-m", module, "--nproc-per-node", *args]
    env = {**os.environ, "PYTHONPATH": f"{CODE}{os.pathsep}{root}", "OMP_NUM_THREADS": "1", **env}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.mark.parametrize(("codes", "code"), [("75,2", 2), ("75,-9", 75), ("0,0", 0)])
def test_the_exit_code_is_that_of_the_process_that_failed(tmp_path, codes, code):
    (tmp_path / "ends.py").write_text(
        "import os, sys\n"
        "code = int(os.environ['CODES'].split(',')[int(os.environ['RANK'])])\n"
        "os.kill(os.getpid(), -code) if code < 0 else sys.exit(code)\n"
    )
    torchrun(tmp_path, "2", "-m", "ends", code=code, CODES=codes)
