"""The GPU kernels without a GPU: in Triton's interpreter, in a process of their own; and compiled for GPUs that are not
here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_kernels_agree_with_torch_in_the_interpreter():
    pytest.importorskip(
        "triton", reason="triton is not installed: `pip install triton==3.9.0` (Linux) runs the kernels' tests"
    )
    script = Path(__file__).parents[2] / "support/interpreted_kernels.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=script.parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={"PYTHONPATH": str(script.parents[2]), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 100, done.stdout


TYPES = {
    "v": "i32",
    "stride": "i32",
    "z_stride": "i32",
    "out_stride": "i32",
    "scale": "fp32",
    "targets": "*i64",
    "out": "*bf16",
}


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize(
    "name, constants", [("_stats", {}), ("_gradient", {"LOOKS": True}), ("_gradient", {"LOOKS": False})]
)
@pytest.mark.filterwarnings("ignore:.*TRITON_DEFAULT_FP_FUSION")
def test_kernels_compile_to_the_machine_code_of_gpus(tmp_path, capability, name, constants):
    """For rows of a vocabulary that 16 divides: 16 bytes a load and store, nothing spilled, and in place no store
    before the barrier."""
    triton = pytest.importorskip(
        "triton", reason="triton is not installed: `pip install triton==3.9.0` (Linux) compiles for GPUs without one"
    )
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from training.lm_head import kernels

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    if not (tools / "ptxas").exists():
        pytest.skip(f"this triton brings no assembler for GPUs ({tools / 'ptxas'} is missing)")
    kernel, constants = getattr(kernels, name), {**constants, "BLOCK": 4096}
    names = list(kernel.arg_names)
    types = {n: "constexpr" if n in constants else TYPES.get(n, "*fp32") for n in names}
    by_16 = {
        (i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if types[n] == "i32" or types[n].startswith("*")
    }
    source = ASTSource(
        fn=kernel, signature=types, constexprs={(names.index(n),): x for n, x in constants.items()}, attrs=by_16
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 8}).asm
    (tmp_path / "cubin").write_bytes(compiled["cubin"])
    used = subprocess.run(
        [tools / "cuobjdump", "--dump-resource-usage", tmp_path / "cubin"], capture_output=True, text=True, check=True
    ).stdout
    used = {k: int(x) for k, x in re.findall(r"(REG|STACK|LOCAL):(\d+)", used)}
    assert used["LOCAL"] == used["STACK"] == 0 and 0 < used["REG"] <= 64, used
    assert len(re.findall(r"ld\.global\.v4", compiled["ptx"])) == 4  # a thread's 16 numbers of a block of 4096
    if name == "_gradient":
        stores = [m.start() for m in re.finditer(r"st\.global\S*", compiled["ptx"])]
        assert len(re.findall(r"st\.global\.v4", compiled["ptx"])) == 2 and 0 < compiled["ptx"].index("bar.sync") < min(
            stores
        )
