"""Actions that a layer of the sandbox must prevent. `probe` runs inside it like any program, tries each action, and
returns the names of those that succeeded. No action does harm if it succeeds."""

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
COLUMN = int(os.uname().machine == "aarch64")


def number(pair):
    return ctypes.c_long(pair[COLUMN])


def call(pair, *arguments):
    """A system call by its numbers: its result, OSError where it fails."""
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = LIBC.syscall(number(pair), *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), "denied")
    return result


def forked():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def held(pair, *arguments):
    """Shared memory, a queue or semaphores, removed at once."""
    identity = call(pair, *arguments)
    remove = {(29, 194): LIBC.shmctl, (68, 186): LIBC.msgctl}.get(pair)
    if remove:
        remove(identity, 0, None)
    else:
        LIBC.semctl(identity, 0, 0)


def thread():
    import threading

    try:
        threading.Thread(target=int).start()
    except RuntimeError as e:
        raise OSError(str(e)) from e


def connected(kind):
    import socket

    socket.socket(*kind).close()


def written(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    os.remove(path)


def locked():
    import fcntl

    with open(os.__file__) as f:
        fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)


def shown(fact):
    if not fact:
        raise OSError("not there")


def attempts(canary, parent, machine):
    """(name, what is tried) of each."""
    folder, raw = os.path.dirname(canary), canary.encode()
    library = os.__file__
    own = os.stat(library)
    return [
        ("change a file's mode", lambda: os.chmod(canary, 0o600)),
        ("change a file's mode by fchmodat2", lambda: call((452, 452), -100, raw, 0o600, 0)),
        ("change the interpreter's mode", lambda: os.chmod(library, own.st_mode & 0o7777)),
        ("change a file's owner", lambda: os.chown(canary, -1, -1)),
        ("change the interpreter's owner", lambda: os.chown(library, -1, -1)),
        ("change a file's times", lambda: os.utime(canary)),
        ("change the interpreter's times", lambda: os.utime(library, ns=(own.st_atime_ns, own.st_mtime_ns))),
        ("change a file's attributes", lambda: os.setxattr(canary, "user.espalier", b"1")),
        ("read a file's attributes", lambda: os.listxattr(canary)),
        ("read a file", lambda: os.open(canary, os.O_RDONLY)),
        ("write a file", lambda: os.open(canary, os.O_WRONLY)),
        ("truncate a file", lambda: os.truncate(canary, 7)),
        ("remove a file", lambda: os.remove(canary)),
        ("rename a file", lambda: os.rename(canary, canary)),
        ("link to a file", lambda: os.link(canary, canary + "2")),
        ("make a symbolic link", lambda: os.symlink("x", folder + "/link")),
        ("make a folder", lambda: os.mkdir(folder + "/new")),
        ("make a folder beside itself", lambda: os.mkdir("new")),
        ("write beside itself", lambda: written("new")),
        ("write to /tmp", lambda: written("/tmp/espalier-probe")),
        ("write to /dev/shm", lambda: written("/dev/shm/espalier-probe")),
        ("write into the interpreter's files", lambda: os.open(library, os.O_WRONLY)),
        ("learn that a file exists", lambda: os.stat(canary)),
        ("list a folder of the user", lambda: os.listdir(folder)),
        ("read /etc/passwd", lambda: os.open("/etc/passwd", os.O_RDONLY)),
        ("list processes", lambda: os.listdir("/proc")),
        ("learn the name of the machine", lambda: shown(os.uname().nodename == machine)),
        ("read the environment", lambda: shown(len(os.environ))),
        ("fork", forked),
        ("start a thread", thread),
        ("become another program", lambda: os.execv(library, ["x"]) or None),
        ("signal its parent", lambda: os.kill(parent, 0)),
        ("trace a process", lambda: call((101, 117), 0, 0, 0, 0)),
        ("become root", lambda: os.setuid(0)),
        ("make namespaces", lambda: call((272, 97), 0x10000000)),
        ("mount", lambda: call((165, 40), None, b"/usr", None, 0x40000, None)),
        ("open a TCP socket", lambda: connected((2, 1))),
        ("open a UDP socket", lambda: connected((2, 2))),
        ("open a Unix socket", lambda: connected((1, 1))),
        ("open a netlink socket", lambda: connected((16, 3))),
        ("hold shared memory", lambda: held((29, 194), 0, 4096, 0o1600)),
        ("hold a message queue", lambda: held((68, 186), 0, 0o1600)),
        ("hold semaphores", lambda: held((64, 190), 0, 1, 0o1600)),
        ("hold a file in memory", lambda: call((319, 279), b"x", 0)),
        ("lock memory", lambda: call((149, 228), ctypes.create_string_buffer(8192), 8192)),
        ("lock a file of the interpreter", locked),
        ("use io_uring", lambda: call((425, 425), 8, ctypes.create_string_buffer(120))),
        ("use bpf", lambda: call((321, 280), 0, ctypes.create_string_buffer(128), 128)),
        ("use the kernel's keys", lambda: call((250, 219), 0, -3, 1, 0, 0)),
        ("leave its group", lambda: call((109, 154), 0, 0) or call((112, 157))),
    ]


def probe(canary, parent, machine):
    """The names of what could be done."""
    done = []
    for name, attempt in attempts(canary, parent, machine):
        try:
            attempt()
        except OSError:
            continue
        done.append(name)
    return done
