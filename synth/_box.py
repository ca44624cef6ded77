"""What runs inside the sandbox: `python -I -S -B _box.py FOLDER`, started by `synth.sandbox`. It locks itself in, then runs the job.

The job is FOLDER/job.json: source, function, inputs, the directories that may be read, limits, whether to use Landlock and to drop root.
One JSON object goes to standard output: {"layer": ..., "results": [{"value": v} or {"error": text}, ...]} or {"error": text}.
The expected outputs are not in this process, so nothing that the program does to it can make a wrong answer look right.
"""

import ast
import ctypes
import importlib.abc
import importlib.util
import json
import os
import re
import resource
import sys

PREPARED = (
    "math cmath itertools functools collections re string heapq bisect statistics fractions decimal operator random datetime typing "
    "dataclasses copy array json"
).split()
PLAIN = (type(None), bool, int, float, str)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
DENIED = {  # calls that no computation needs: (x86_64, aarch64), None where there is none
    "clone": (56, 220), "fork": (57, None), "vfork": (58, None), "clone3": (435, 435), "execve": (59, 221), "execveat": (322, 281),
    "socket": (41, 198), "socketpair": (53, 199), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "io_uring_setup": (425, 425), "userfaultfd": (323, 282), "bpf": (321, 280), "perf_event_open": (298, 241), "mount": (165, 40),
    "unshare": (272, 97), "setns": (308, 268), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
}  # fmt: skip
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3


def landlock(readable: list[str]) -> None:
    """Forbid every file access but reading below `readable`, and TCP, abstract sockets and signals outside where the kernel can.

    Raises OSError where the kernel has no Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*args: object) -> int:
        result = libc.syscall(*args)
        if result < 0:
            raise OSError(ctypes.get_errno(), "Landlock is not available")
        return result

    version = call(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    files = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    words = [files] + ([3] if version >= 4 else []) + ([3] if version >= 6 else [])
    attribute = (ctypes.c_uint64 * len(words))(*words)
    ruleset = call(CREATE_RULESET, attribute, ctypes.c_size_t(8 * len(words)), 0)
    for path in readable:
        if os.path.isdir(path):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = (EXECUTE | READ_FILE | READ_DIR).to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
            call(ADD_RULE, ruleset, 1, rule, 0)
            os.close(place)
    if libc.prctl(38, 1, 0, 0, 0):  # no new privileges
        raise OSError(ctypes.get_errno(), "privileges cannot be given up")
    call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def seccomp() -> None:
    """Deny the calls of DENIED for good (they fail with EPERM). Root is exempt from the limit on processes, but not from this. Does
    nothing on another architecture, where the probe of the sandbox decides; raises OSError where the kernel has no filters."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return
    column = list(ARCHITECTURES).index(machine)
    numbers = [pair[column] for pair in DENIED.values() if pair[column] is not None]
    load, equal, above, give = 0x20, 0x15, 0x35, 0x06
    deny, allow, kill = 0x00050001, 0x7FFF0000, 0x80000000
    code = [(load, 0, 0, 4), (equal, 1, 0, ARCHITECTURES[machine]), (give, 0, 0, kill), (load, 0, 0, 0)]
    code.append((above, len(numbers) + 1, 0, 0x40000000))  # calls of another ABI
    code += [(equal, len(numbers) - i, 0, n) for i, n in enumerate(numbers)]
    code += [(give, 0, 0, allow), (give, 0, 0, deny)]
    body = b"".join(c.to_bytes(2, sys.byteorder) + bytes((t, f)) + k.to_bytes(4, sys.byteorder) for c, t, f, k in code)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(code), body)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp is not available")


def confine(job: dict) -> None:
    """Limits, another user where this one is root, Landlock, and a filter of system calls, in this order."""
    for name, value in job["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if job["drop_root"] and os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if job["landlock"]:
        landlock(job["readable"])
        seccomp()


def plain(value: object, depth: int = 0) -> object:
    """The value as JSON, exact builtin types only: an object of the program's own cannot pretend to be equal to anything."""
    if type(value) in PLAIN:
        return value
    if depth < 20 and type(value) in (list, tuple):
        return [plain(v, depth + 1) for v in value]
    if depth < 20 and type(value) is dict and all(type(k) is str for k in value):
        return {k: plain(v, depth + 1) for k, v in value.items()}
    raise TypeError(f"a result of type {type(value).__name__} cannot be compared")


class Memory(importlib.abc.InspectLoader):
    """A loader of source that is already here: once locked in, this process may be unable to read its own folder."""

    def __init__(self, source: str) -> None:
        self.source = source

    def get_source(self, name: str) -> str:
        return self.source


def load(source: str, function: str) -> object:
    """The function of the source. Only definitions, imports and assignments may stand at its top level."""
    for node in ast.parse(source).body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if not text and not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)):
            raise SyntaxError(f"line {node.lineno}: only definitions may stand here")
    loader = Memory(source)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("solution", loader))
    loader.exec_module(module)
    return getattr(module, function)


def main() -> None:
    with open(os.path.join(sys.argv[1], "job.json"), encoding="utf-8") as f:
        job = json.load(f)
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the program prints goes nowhere
    for name in set(re.findall(r"^\s*(?:import|from)\s+(\w+)", job["source"], re.MULTILINE)) & set(PREPARED):
        importlib.import_module(name)  # read before the file system closes
    try:
        confine(job)
    except OSError as e:
        os.write(out, json.dumps({"refused": str(e)}).encode())
        return
    try:
        function = load(job["source"], job["function"])
        answer: dict = {"results": []}
        for arguments in job["inputs"]:
            try:
                answer["results"].append({"value": plain(function(*arguments))})
            except Exception as e:  # the program's own error on this input is its result
                answer["results"].append({"error": f"{type(e).__name__}: {e}"[:200]})
        data = json.dumps(answer)
    except (Exception, SystemExit) as e:  # the source does not load, or its results cannot be written
        data = json.dumps({"error": f"{type(e).__name__}: {e}"[:200]})
    sent = data.encode()
    while sent:
        sent = sent[os.write(out, sent) :]


if __name__ == "__main__":
    main()
