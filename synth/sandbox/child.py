"""What runs inside the sandbox: started by `synth.sandbox.parent` as `python -s -P -S -B`, it locks itself in, then runs the job.

The job is a dict: source, function, inputs, the layer, the directories that may be read, the user to become (or None) and
limits. One JSON object goes to standard output: {"results": [{"value": v} or {"error": text}, ...]}, {"error": text} or
{"refused": text}. The expected outputs are not in this process, so nothing that the program does to it can make a wrong
answer look right.

Nothing but builtin modules and ctypes is imported: a run starts with this file, and each module costs as much as many a
program.
"""

import _ast
import ctypes
import os
import resource
import sys
from _json import encode_basestring_ascii

PLAIN = (type(None), bool, int, float, str)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# the system calls that a computation needs; every other call fails with EPERM. (x86_64, aarch64), None where there is
# none
ALLOWED = {
    "read": (0, 63),
    "readv": (19, 65),
    "write": (1, 64),
    "writev": (20, 66),
    "pread64": (17, 67),
    "lseek": (8, 62),
    "close": (3, 57),
    "close_range": (436, 436),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "umask": (95, 166),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "mprotect": (10, 226),
    "madvise": (28, 233),
    "brk": (12, 214),
    "membarrier": (324, 283),
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "pause": (34, None),
    "alarm": (37, None),
    "getitimer": (36, 102),
    "setitimer": (38, 103),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getrusage": (98, 165),
    "getrlimit": (97, 163),
    "setrlimit": (160, 164),  # down only: the hard limits are set
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getcpu": (309, 168),
    "getpriority": (140, 141),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getppid": (110, 173),
    "getpgrp": (111, None),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getgroups": (115, 158),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "getrandom": (318, 278),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000  # flags of open: write only, both, create, truncate, without a name
ONLY_WITH = {  # calls that are partly allowed: the argument, how it is tested, the values, the result of other values
    "open": (2, None, 1, "without", (WRITING,), 13),
    "openat": (257, 56, 2, "without", (WRITING,), 13),
    "fcntl": (
        72,
        25,
        1,
        "one of",
        (0, 1, 2, 3, 4, 1030),
        1,
    ),  # copies and flags of descriptors: no locks, leases, sizes
    "ioctl": (16, 29, 1, "one of", (0x5401, 0x5413, 0x541B, 0x5450, 0x5451), 25),  # is it a terminal, and of what size
    "prlimit64": (302, 261, 0, "one of", (0,), 1),  # its own limits
}
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
MOUNT_SETATTR, PIVOT_ROOT = 442, {"x86_64": 155, "aarch64": 41}
NEW_MOUNTS, NEW_CGROUP, NEW_NAMES, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NET = (
    0x00020000,
    0x02000000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
NOBODY = 65534
EPOCH, LOOK = (
    1_704_067_200_000_000_000,
    100_000,
)  # nanoseconds: the start of the program's clock, and its step at each reading
LIBC = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """The result of a call of libc. Raises OSError with `what` where it failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def enter(readable: list, user: object) -> None:
    """Leave the machine: namespaces of its own for mounts, processes, network, IPC, names and groups (and users, where
    this process is not root), a root directory that holds `readable` alone and can not be written. Returns in a new
    process, the first of its namespace; the old one waits for it and ends as it ended. Raises OSError where the kernel
    gives no namespaces."""
    kinds = NEW_MOUNTS | NEW_CGROUP | NEW_NAMES | NEW_IPC | NEW_PIDS | NEW_NET
    uid, gid = os.getuid(), os.getgid()
    if user is None or LIBC.unshare(kinds) < 0:
        check(LIBC.unshare(kinds | NEW_USER), "no namespaces")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{NOBODY} {uid} 1"),
            ("gid_map", f"{NOBODY} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as f:
                f.write(text)
    check(LIBC.sethostname(b"box", 3), "the name of the machine cannot be hidden")
    folders(readable)
    child = os.fork()
    if child:
        for fd in range(4):
            os.close(fd)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)


def folders(readable: list) -> None:
    """Make `readable` all that there is of files, and nothing of it writable. Raises OSError where that fails."""
    private, bind, detach = 0x40000 | 0x4000, 0x1000 | 0x4000, 2
    check(LIBC.mount(None, b"/", None, ctypes.c_ulong(private), None), "mounts cannot be made private")
    top = "/proc"  # exists everywhere, and none of the folders lies in it
    check(LIBC.mount(b"box", top.encode(), b"tmpfs", ctypes.c_ulong(0), b"size=64k,nr_inodes=256,mode=755"), "no tmpfs")
    os.mkdir(f"{top}/box", 0o555)
    for path in sorted(readable):
        if os.path.islink(path):
            os.makedirs(os.path.dirname(top + path), 0o755, exist_ok=True)
            os.symlink(os.readlink(path), top + path)
        elif not any(path.startswith(other + "/") for other in readable):
            os.makedirs(top + path, 0o755, exist_ok=True)
            check(
                LIBC.mount(path.encode(), (top + path).encode(), None, ctypes.c_ulong(bind), None), f"{path}: no mount"
            )
    os.chdir(top)
    check(LIBC.syscall(ctypes.c_long(PIVOT_ROOT[os.uname().machine]), b".", b"."), "the root cannot be changed")
    check(LIBC.umount2(b".", detach), "the old root cannot be left")
    read_only_without_devices = (ctypes.c_uint64 * 4)(1 | 2 | 4, 0, 0, 0)  # read-only, no set-user-id, no devices
    check(
        LIBC.syscall(ctypes.c_long(MOUNT_SETATTR), -100, b"/", 0x8000, read_only_without_devices, ctypes.c_size_t(32)),
        "mounts cannot be made read-only",
    )
    os.chdir("/box")


def landlock(readable: list) -> None:
    """Forbid every file access but reading below `readable`, and TCP, abstract sockets and signals outside where the
    kernel can.

    Raises OSError where the kernel has no Landlock.
    """

    def call(*args: object) -> int:
        return check(LIBC.syscall(*args), "Landlock is not available")

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
    check(LIBC.prctl(38, 1, 0, 0, 0), "privileges cannot be given up")
    call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def seccomp() -> None:
    """Allow the calls of ALLOWED and ONLY_WITH for good; any other fails with EPERM, one of another architecture ends the
    process. Raises OSError where the kernel has no filters, and on an architecture whose numbers are not known here."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(f"the calls of {machine} are not known: the sandbox works on {' and '.join(ARCHITECTURES)}")
    column = list(ARCHITECTURES).index(machine)
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    error, allow, kill = 0x00050000, 0x7FFF0000, 0x80000000
    code = [(load, 0, 0, 4), (equal, 1, 0, ARCHITECTURES[machine]), (give, 0, 0, kill), (load, 0, 0, 0)]
    for numbers in ALLOWED.values():
        if numbers[column] is not None:
            code += [(equal, 0, 1, numbers[column]), (give, 0, 0, allow)]
    for *numbers, argument, how, values, code_of_error in ONLY_WITH.values():
        if numbers[column] is None:
            continue
        if how == "without":
            test = [(any_bit, 0, 1, values[0]), (give, 0, 0, error | code_of_error), (give, 0, 0, allow)]
        else:
            test = [(equal, len(values) - i, 0, v) for i, v in enumerate(values)]
            test += [(give, 0, 0, error | code_of_error), (give, 0, 0, allow)]
        code += [(equal, 0, len(test) + 1, numbers[column]), (load, 0, 0, 16 + 8 * argument), *test]
    code.append((give, 0, 0, error | 1))
    body = b"".join(c.to_bytes(2, sys.byteorder) + bytes((t, f)) + k.to_bytes(4, sys.byteorder) for c, t, f, k in code)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    program = Program(len(code), body)
    check(LIBC.prctl(38, 1, 0, 0, 0), "privileges cannot be given up")
    check(LIBC.prctl(22, 2, ctypes.byref(program), 0, 0), "seccomp is not available")


def confine(job: dict) -> None:
    """Namespaces, limits, a user who owns nothing, no capabilities, Landlock, and a filter of system calls, in this
    order."""
    isolated = job["layer"] != "none"
    if job["layer"] == "namespaces":
        enter(job["readable"], job["user"])
    for name, value in job["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if isolated and os.getuid() == 0 and job["user"] is not None:
        for user in (job["user"], NOBODY):  # the second where this root is one of few users
            try:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                break
            except OSError:
                continue
        else:
            raise OSError("no user who owns nothing can be become")
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if isolated:
        header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        check(LIBC.capset(header, none), "capabilities cannot be given up")
        check(LIBC.prctl(1, 9, 0, 0, 0), "it would outlive its parent")  # SIGKILL when the parent ends
        landlock(job["readable"])
        seccomp()


def repeatable() -> None:
    """Give the program a clock and random numbers that are the same in each of its runs: each look moves the clock by
    LOOK, a sleep by its length, and what asks the kernel for random bytes gets those of one seed."""
    import _random
    import time

    now, plain_sleep, source = [0], time.sleep, _random.Random(0)

    def look() -> int:
        now[0] += LOOK
        return now[0]

    def sleep(seconds, /):
        plain_sleep(seconds)
        now[0] += int(seconds * 1_000_000_000)

    def since(_clock, /) -> int:
        return look() + (EPOCH if _clock == time.CLOCK_REALTIME else 0)

    time.sleep = sleep
    time.time_ns, time.time = lambda: EPOCH + look(), lambda: (EPOCH + look()) / 1_000_000_000
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(time, name + "_ns", look)
        setattr(time, name, lambda: look() / 1_000_000_000)
    time.clock_gettime_ns, time.clock_gettime = since, lambda c, /: since(c) / 1_000_000_000
    plain = {name: getattr(time, name) for name in ("gmtime", "localtime", "ctime", "asctime", "strftime")}
    for name in ("gmtime", "localtime", "ctime"):
        setattr(time, name, lambda s=None, /, f=plain[name]: f(time.time() if s is None else s))
    time.asctime = lambda t=None, /: plain["asctime"](time.localtime() if t is None else t)
    time.strftime = lambda form, t=None, /: plain["strftime"](form, time.localtime() if t is None else t)

    def urandom(size, /) -> bytes:
        return source.getrandbits(8 * size).to_bytes(size, "little") if size > 0 else b""

    os.urandom, os.getrandom = urandom, lambda size, flags=0: urandom(size)
    plain_random = _random.Random

    class Random(plain_random):
        def __new__(cls, *args, **kwargs):
            return plain_random.__new__(cls, 0)  # pyright: ignore[reportCallIssue]  # typeshed leaves the seed out

        def __init__(self, x=None, /):
            self.seed(x)

        def seed(self, n=None, /):
            plain_random.seed(self, source.getrandbits(128) if n is None else n)

    _random.Random = Random
    sys.modules["_uuid"] = None  # type: ignore[assignment]  # asks the machine; uuid does without it


def repeatable_dates() -> None:
    """The same for `datetime.now` and `utcnow`, which ask the kernel themselves: their entries in the type are replaced."""
    import gc
    import time
    from _datetime import datetime

    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)

    def utcnow(cls):
        return cls.utcfromtimestamp(time.time())

    entries = gc.get_referents(datetime.__dict__)[0]
    entries["now"], entries["utcnow"] = classmethod(now), classmethod(utcnow)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))


def plain(value, depth: int = 0) -> str:
    """The value as JSON, exact builtin types only: an object of the program's own cannot pretend to be equal to
    anything."""
    kind = type(value)
    if kind is str:
        return encode_basestring_ascii(value)
    if kind is float:
        # no math.isnan: a program in this process may have replaced it
        special = "NaN" if value != value else "Infinity" if value == 1e999 else "-Infinity" if value == -1e999 else ""  # noqa: PLR0124
        return special or float.__repr__(value)
    if kind in PLAIN:
        return {None: "null", True: "true", False: "false"}[value] if kind is not int else int.__repr__(value)
    if depth < 20 and kind in (list, tuple):
        return "[" + ", ".join([plain(v, depth + 1) for v in value]) + "]"
    if depth < 20 and kind is dict and all(type(k) is str for k in value):
        pairs = [f"{encode_basestring_ascii(k)}: {plain(v, depth + 1)}" for k, v in value.items()]
        return "{" + ", ".join(pairs) + "}"
    raise TypeError(f"a result of type {kind.__name__} cannot be compared")


def error(e: BaseException) -> str:
    """An exception as JSON, cut to 200 characters."""
    return '{"error": ' + encode_basestring_ascii(f"{type(e).__name__}: {e}"[:200]) + "}"


def load(source: str, function: str):
    """The function of the source. Only definitions, imports and assignments may stand at its top level."""
    tree = compile(source, "<unknown>", "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, _ast.Module)
    for node in tree.body:
        text = isinstance(node, _ast.Expr) and isinstance(node.value, _ast.Constant) and type(node.value.value) is str
        if not text and not isinstance(
            node, (_ast.FunctionDef, _ast.ClassDef, _ast.Import, _ast.ImportFrom, _ast.Assign, _ast.AnnAssign)
        ):
            raise SyntaxError(f"line {node.lineno}: only definitions may stand here")
    module = type(sys)("solution")
    exec(compile(tree, "<solution>", "exec", dont_inherit=True), module.__dict__)
    return getattr(module, function)


def main(job: dict) -> None:
    """Runs the job and ends the process."""
    LIBC.prctl(1, 9, 0, 0, 0)  # SIGKILL when who started it ends
    out, null = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for fd in range(3):  # what the program prints goes nowhere
        os.dup2(null, fd)
    os.close(null)
    os.environ.clear()
    try:
        confine(job)
    except OSError as e:
        os.write(out, b'{"refused": ' + encode_basestring_ascii(e.strerror or str(e)).encode() + b"}")
        os._exit(0)
    try:
        repeatable()
        if "date" in job["source"]:
            repeatable_dates()
        function = load(job["source"], job["function"])
        answers = []
        for arguments in job["inputs"]:
            try:
                answers.append('{"value": ' + plain(function(*arguments)) + "}")
            except Exception as e:  # the program's own error on this input is its result
                answers.append(error(e))
        data = '{"results": [' + ", ".join(answers) + "]}"
    except (Exception, SystemExit) as e:  # the source does not load, or its results cannot be written
        data = error(e)
    sent = data.encode()
    while sent:
        sent = sent[os.write(out, sent) :]
    os._exit(0)
