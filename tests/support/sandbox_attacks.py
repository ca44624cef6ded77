"""What a hostile program tries, by name: each is the body of a function and returns "done" where it got what it wanted.

A body may use `os`, `ctypes`, `call(name, *arguments)` (a system call without libc's help; the result, or -errno), and
the names that `Targets` puts before it: FILE, a file of the user in the folder FOLDER; PORT, where a server listens on
the loopback; SOCKET, the path of a Unix socket and ABSTRACT the name of another; PARENT, the process that started the
sandbox. `run_all` runs them and also compares the folder before and after, so that an attack that works and says
nothing is seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from synth.sandbox import parent as sandbox

PRELUDE = """
import ctypes, os
LIBC = ctypes.CDLL(None, use_errno=True)
ARM = os.uname().machine == "aarch64"
NUMBERS = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "link": (86, None), "linkat": (265, 37), "renameat2": (316, 276), "mknodat": (259, 33),
    "truncate": (76, 45), "openat2": (437, 437), "clone": (56, 220), "vfork": (58, None), "clone3": (435, 435), "execve": (59, 221),
    "execveat": (322, 281), "ptrace": (101, 117), "process_vm_readv": (310, 270), "pidfd_open": (434, 434), "kill": (62, 129),
    "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "ioprio_set": (251, 30), "kcmp": (312, 272), "prlimit64": (302, 261),
    "unshare": (272, 97), "setns": (308, 268), "prctl": (157, 167), "personality": (135, 92), "socket": (41, 198),
    "io_uring_setup": (425, 425), "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "memfd_create": (319, 279), "memfd_secret": (447, 447), "eventfd2": (290, 19), "signalfd4": (289, 74),
    "timerfd_create": (283, 85), "userfaultfd": (323, 282), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219),
    "add_key": (248, 217), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430),
    "open_tree": (428, 428), "mount_setattr": (442, 442), "sethostname": (170, 161), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "init_module": (175, 105), "syslog": (103, 116), "acct": (163, 89), "iopl": (172, None),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "fanotify_init": (300, 262), "name_to_handle_at": (303, 264),
    "epoll_create1": (291, 20), "sync": (162, 81), "mlock": (149, 228), "setpriority": (141, 140), "sched_setaffinity": (203, 122),
    "capset": (126, 91), "setsid": (112, 157), "setpgid": (109, 154), "setuid": (105, 146), "setgroups": (116, 159),
    "splice": (275, 76), "vmsplice": (278, 75), "quotactl": (179, 60), "swapon": (167, 224), "reboot": (169, 142),
    "setdomainname": (171, 162), "landlock_create_ruleset": (444, 444), "seccomp": (317, 277), "process_madvise": (440, 440),
    "move_pages": (279, 239), "getcpu": (309, 168), "lookup_dcookie": (212, 18), "kexec_load": (246, 104), "getdents64": (217, 61),
    "timer_create": (222, 107), "listxattr": (194, 11), "getxattr": (191, 8), "statmount": (457, 457), "listmount": (458, 458),
}
def call(name, *arguments):
    number = NUMBERS[name][ARM]
    if number is None:
        return -38
    given = [a if isinstance(a, int) else ctypes.c_char_p(a) if isinstance(a, bytes) else a for a in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in given])
    return result if result >= 0 else -ctypes.get_errno()
"""
DONE = "return 'done' if {} else 'no'"
_opened = "fd = os.open(os.__file__, os.O_RDONLY)\n"

ATTACKS: dict[str, str] = {
    # modes, owners, times and attributes of the user's files
    "chmod": "os.chmod(FILE, 0o4777)\nreturn 'done'",
    "chmod raw": DONE.format("call('chmod', FILE.encode(), 0o4777) == 0"),
    "fchmodat": "d = os.open(FOLDER, os.O_PATH)\nos.chmod('canary', 0o4777, dir_fd=d)\nreturn 'done'",
    "fchmodat raw": DONE.format("call('fchmodat', -100, FILE.encode(), 0o4777) == 0"),
    "fchmodat2": DONE.format("call('fchmodat2', -100, FILE.encode(), 0o4777, 0) == 0"),
    "chmod through a path descriptor": "fd = os.open(FILE, os.O_PATH)\nos.chmod(f'/proc/self/fd/{fd}', 0o4777)\nreturn 'done'",
    "chmod of a folder": "os.chmod(FOLDER, 0o777)\nreturn 'done'",
    "chmod of the working directory": "os.chmod('.', 0o777)\nreturn 'done'",
    "chmod of the home folder": "os.chmod(HOME, os.stat(HOME).st_mode & 0o7777)\nreturn 'done'",
    "chmod of the interpreter": "os.chmod(os.__file__, os.stat(os.__file__).st_mode & 0o7777)\nreturn 'done'",
    "fchmod of the interpreter": _opened + "os.fchmod(fd, os.fstat(fd).st_mode & 0o7777)\nreturn 'done'",
    "fchmod of a descriptor that was given": "for fd in range(32):\n    try:\n        m = os.fstat(fd).st_mode\n"
    "        if m & 0o170000 == 0o020000:\n            os.fchmod(fd, m & 0o7777)\n            return 'done'\n    except OSError:\n        pass\n"
    "return 'no'",
    "chown": "os.chown(FILE, os.getuid(), -1)\nreturn 'done'",
    "chown raw": DONE.format("call('chown', FILE.encode(), -1, -1) == 0"),
    "lchown": DONE.format("call('lchown', FILE.encode(), -1, -1) == 0"),
    "fchownat": DONE.format("call('fchownat', -100, FILE.encode(), -1, -1, 0) == 0"),
    "fchown of the interpreter": _opened + "os.fchown(fd, -1, -1)\nreturn 'done'",
    "utime": "os.utime(FILE, (0, 0))\nreturn 'done'",
    "utime raw": DONE.format("call('utime', FILE.encode(), 0) == 0"),
    "utimes": DONE.format("call('utimes', FILE.encode(), 0) == 0"),
    "futimesat": DONE.format("call('futimesat', -100, FILE.encode(), 0) == 0"),
    "utimensat": DONE.format("call('utimensat', -100, FILE.encode(), 0, 0) == 0"),
    "futimens of the interpreter": _opened
    + "s = os.fstat(fd)\nos.utime(fd, ns=(s.st_atime_ns, s.st_mtime_ns))\nreturn 'done'",
    "setxattr": "os.setxattr(FILE, 'user.x', b'1')\nreturn 'done'",
    "lsetxattr": DONE.format("call('lsetxattr', FILE.encode(), b'user.x', b'1', 1, 0) == 0"),
    "setxattrat": "arguments = (ctypes.c_uint64 * 2)(ctypes.addressof(ctypes.create_string_buffer(b'1')), 1)\n"
    + DONE.format("call('setxattrat', -100, FILE.encode(), 0, b'user.x', arguments, 16) == 0"),
    "removexattr": "os.removexattr(FILE, 'user.mark')\nreturn 'done'",
    "read an attribute": DONE.format("os.getxattr(FILE, 'user.mark')"),
    "list attributes": DONE.format("'user.mark' in os.listxattr(FILE)"),
    "fsetxattr of the interpreter": _opened
    + "os.setxattr(fd, 'user.espalier', b'1')\nos.removexattr(fd, 'user.espalier')\nreturn 'done'",
    "change the flags of a file": _opened
    + "import fcntl, array\nflags = array.array('l', [0])\nfcntl.ioctl(fd, 0x80086601, flags)\nfcntl.ioctl(fd, 0x40086602, flags)\nreturn 'done'",
    # names and contents
    "remove": "os.remove(FILE)\nreturn 'done'",
    "rename": "os.rename(FILE, FILE + '2')\nreturn 'done'",
    "exchange": DONE.format("call('renameat2', -100, FILE.encode(), -100, FILE.encode(), 0) == 0"),
    "hard link": "os.link(FILE, FILE + '2')\nreturn 'done'",
    "hard link to the interpreter": "os.link(os.__file__, FOLDER + '/link')\nreturn 'done'",
    "symbolic link": "os.symlink('/', FOLDER + '/link')\nreturn 'done'",
    "make a folder": "os.mkdir(FOLDER + '/new')\nreturn 'done'",
    "make a folder at the root": "os.mkdir('/espalier-new')\nos.rmdir('/espalier-new')\nreturn 'done'",
    "remove a folder": "os.rmdir(FOLDER + '/empty')\nreturn 'done'",
    "make a pipe with a name": "os.mkfifo(FOLDER + '/fifo')\nreturn 'done'",
    "make a node": DONE.format("call('mknodat', -100, (FOLDER + '/node').encode(), 0o100644, 0) == 0"),
    "truncate": "os.truncate(FILE, 0)\nreturn 'done'",
    "write over": "open(FILE, 'w').write('x')\nreturn 'done'",
    "open for writing": "os.open(FILE, os.O_RDWR)\nreturn 'done'",
    "open without a name": "os.open(FOLDER, os.O_TMPFILE | os.O_RDWR)\nreturn 'done'",
    "openat2": "how = (ctypes.c_uint64 * 3)(2, 0, 0)\n"
    + DONE.format("call('openat2', -100, FILE.encode(), how, 24) >= 0"),
    "write beside itself": "open('x', 'w').write('x')\nreturn 'done'",
    "write to /tmp": "open('/tmp/espalier-escape', 'w').write('x')\nreturn 'done'",
    "write to /dev/shm": "open('/dev/shm/espalier-escape', 'w').write('x')\nos.remove('/dev/shm/espalier-escape')\nreturn 'done'",
    "write into the interpreter": "open(os.__file__, 'a')\nreturn 'done'",
    "leave a file in a folder of the interpreter": "p = os.path.dirname(os.__file__) + '/espalier_escape.py'\nopen(p, 'w').close()\nos.remove(p)\nreturn 'done'",
    # what may be seen
    "read the file": DONE.format("open(FILE).read()"),
    "list the folder": DONE.format("os.listdir(FOLDER)"),
    "read the password file": DONE.format("open('/etc/passwd').read()"),
    "list the home folder": DONE.format("os.listdir(HOME) is not None"),
    "list /tmp": DONE.format("os.listdir('/tmp') is not None"),
    "learn that a file exists": "os.stat(FILE)\nreturn 'done'",
    "learn it by access": DONE.format("os.access(FILE, os.F_OK)"),
    "learn it by a path descriptor": "os.open(FILE, os.O_PATH)\nreturn 'done'",
    "learn the user's folder of work": DONE.format("os.readlink(f'/proc/{PARENT}/cwd')"),
    "read the environment of the parent": DONE.format("open(f'/proc/{PARENT}/environ', 'rb').read()"),
    "read the memory of the parent": "open(f'/proc/{PARENT}/mem', 'rb')\nreturn 'done'",
    "list processes": DONE.format("[p for p in os.listdir('/proc') if p.isdigit()]"),
    "see that the parent runs": "os.stat(f'/proc/{PARENT}')\nreturn 'done'",
    "list mounts": DONE.format("open('/proc/self/mountinfo').read()"),
    "list devices": DONE.format("os.listdir('/dev')"),
    "read /sys": DONE.format("os.listdir('/sys')"),
    "the name of the machine": DONE.format("os.uname().nodename == MACHINE"),
    "a secret of the environment": DONE.format("'ESPALIER_SECRET' in os.environ"),
    "watch a file": "fd = call('inotify_init1', 0)\n"
    + DONE.format("fd >= 0 and call('inotify_add_watch', fd, FILE.encode(), 2) >= 0"),
    "watch a file system": DONE.format("call('fanotify_init', 0, 0) >= 0"),
    "a file's handle": "b = ctypes.create_string_buffer(136)\nb[0] = 128\nm = ctypes.c_int()\n"
    + DONE.format("call('name_to_handle_at', -100, FILE.encode(), b, ctypes.byref(m), 0) == 0"),
    "leave by chdir": "os.chdir(FOLDER)\nreturn 'done'",
    "leave by ..": "os.chdir('../../../..')\n"
    + DONE.format("os.path.exists('tmp') and os.path.exists('etc') and os.listdir('etc')"),
    "the kernel's log": "b = ctypes.create_string_buffer(4096)\n" + DONE.format("call('syslog', 3, b, 4096) > 0"),
    "descriptors of the parent": "import stat\nopen_ = []\nfor fd in range(3, 1024):\n    try:\n        m = os.fstat(fd).st_mode\n"
    "        open_ += [fd] if not stat.S_ISFIFO(m) else []\n    except OSError:\n        pass\n" + DONE.format("open_"),
    # processes
    "fork": "p = os.fork()\nif p == 0:\n    os._exit(0)\nreturn 'done'",
    "clone": "p = call('clone', 0x4000 | 0x100 | 17, 0, 0, 0, 0) if not ARM else -1\nif p == 0:\n    LIBC._exit(0)\n"
    + DONE.format("p > 0"),
    "clone3": "a = (ctypes.c_uint64 * 11)()\na[4] = 17\np = call('clone3', a, 88)\nif p == 0:\n    LIBC._exit(0)\n"
    + DONE.format("p > 0"),
    "a thread": "import threading\nthreading.Thread(target=lambda: None).start()\nreturn 'done'",
    "fork bomb": "n = 0\nwhile n < 50:\n    if os.fork() == 0:\n        os._exit(0)\n    n += 1\nreturn 'done'",
    "start a program": "import subprocess\nsubprocess.run(['/bin/true'], check=True)\nreturn 'done'",
    "posix_spawn": "os.posix_spawn('/bin/true', ['true'], {})\nreturn 'done'",
    "become another program": "import sys\nos.execv(EXECUTABLE, ['python', '-I', '-c', 'import os; os.write(3, b\"done\")'])",
    "execveat": "fd = os.open(EXECUTABLE, os.O_PATH)\ncall('execveat', fd, b'', 0, 0, 0x1000)\nreturn 'no'",
    "trace itself": DONE.format("call('ptrace', 0, 0, 0, 0) == 0"),
    "trace the parent": DONE.format("call('ptrace', 16, PARENT, 0, 0) == 0"),
    "read another process": "b = ctypes.create_string_buffer(8)\nv = (ctypes.c_uint64 * 2)(ctypes.addressof(b), 8)\n"
    + DONE.format("call('process_vm_readv', os.getpid(), v, 1, v, 1, 0) > 0"),
    "a handle of the parent": DONE.format("call('pidfd_open', PARENT, 0) >= 0"),
    "a handle of itself": DONE.format("call('pidfd_open', os.getpid(), 0) >= 0"),
    "signal the parent": "os.kill(PARENT, 0)\nreturn 'done'",
    "signal everyone": "os.kill(-1, 0)\nreturn 'done'",
    "signal the group": "os.killpg(0, 0)\nreturn 'done'",
    "signal a thread of the parent": DONE.format("call('tgkill', PARENT, PARENT, 0) == 0"),
    "queue a signal": "b = ctypes.create_string_buffer(128)\n"
    + DONE.format("call('rt_sigqueueinfo', PARENT, 0, b) == 0"),
    "the priority of all processes": DONE.format("call('setpriority', 2, 0, 1) == 0"),
    "the priority of the parent": DONE.format("call('setpriority', 0, PARENT, 1) == 0"),
    "the cores of the parent": "b = ctypes.create_string_buffer(b'\\x01' + bytes(127), 128)\n"
    + DONE.format("call('sched_setaffinity', PARENT, 128, b) == 0"),
    "the disk priority of the parent": DONE.format("call('ioprio_set', 1, PARENT, 0x4004) == 0"),
    "limits of the parent": DONE.format("call('prlimit64', PARENT, 7, 0, ctypes.create_string_buffer(16)) == 0"),
    "more memory than given": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nreturn 'done'",
    "more CPU time than given": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (60, 60))\nreturn 'done'",
    "a session of its own": DONE.format("call('setsid') > 0 or call('setpgid', 0, 0) == 0"),
    "become root": "os.setuid(0)\nreturn 'done' if os.getuid() == 0 else 'no'",
    "other groups": "os.setgroups([0])\nreturn 'done'",
    "capabilities": "h = (ctypes.c_uint32 * 2)(0x20080522, 0)\nd = (ctypes.c_uint32 * 6)(0xffffffff, 0xffffffff, 0, 0xff, 0xff, 0)\n"
    + DONE.format("call('capset', h, d) == 0"),
    "keep capabilities": DONE.format("call('prctl', 8, 1, 0, 0, 0) == 0"),
    "outlive the parent": DONE.format("call('prctl', 1, 0, 0, 0, 0) == 0"),
    "another personality": DONE.format("call('personality', 0x400000) >= 0"),
    # namespaces and mounts
    "a user namespace": DONE.format("call('unshare', 0x10000000) == 0"),
    "a mount namespace": DONE.format("call('unshare', 0x20000) == 0"),
    "the parent's namespace": "fd = os.open(f'/proc/{PARENT}/ns/net', os.O_RDONLY)\n"
    + DONE.format("call('setns', fd, 0) == 0"),
    "mount": DONE.format("call('mount', b'none', b'/usr', b'tmpfs', 0, 0) == 0"),
    "make writable": DONE.format("call('mount', b'none', b'/usr', 0, 0x1000 | 0x20, 0) == 0"),
    "make writable by mount_setattr": "a = (ctypes.c_uint64 * 4)(0, 1, 0, 0)\n"
    + DONE.format("call('mount_setattr', -100, b'/', 0x8000, a, 32) == 0"),
    "unmount": DONE.format("call('umount2', b'/usr', 2) == 0"),
    "chroot": "os.chroot('/usr')\nreturn 'done'",
    "pivot_root": DONE.format("call('pivot_root', b'.', b'.') == 0"),
    "fsopen": DONE.format("call('fsopen', b'tmpfs', 0) >= 0"),
    "open_tree": DONE.format("call('open_tree', -100, b'/', 0) >= 0"),
    # network and messages
    "TCP": "import socket\ns = socket.create_connection(('127.0.0.1', PORT), 1)\nreturn 'done'",
    "UDP": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nreturn 'done'",
    "a Unix socket with a name": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(SOCKET)\nreturn 'done'",
    "an abstract Unix socket": "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0' + ABSTRACT)\nreturn 'done'",
    "a pair of sockets": "import socket\nsocket.socketpair()\nreturn 'done'",
    "netlink": DONE.format("call('socket', 16, 3, 0) >= 0"),
    "raw socket": DONE.format("call('socket', 17, 3, 0) >= 0"),
    "vsock": DONE.format("call('socket', 40, 1, 0) >= 0"),
    "the kernel's ciphers": DONE.format("call('socket', 38, 5, 0) >= 0"),
    "io_uring": DONE.format("call('io_uring_setup', 8, ctypes.create_string_buffer(120)) >= 0"),
    "a message queue": DONE.format("call('msgget', 0, 0o1600) >= 0"),
    "semaphores": DONE.format("call('semget', 0, 1, 0o1600) >= 0"),
    "a POSIX message queue": DONE.format("call('mq_open', b'espalier', 0o102, 0o600, 0) >= 0"),
    # memory
    "shared memory": DONE.format("call('shmget', 0, 4096, 0o1600) >= 0"),
    "shared memory over the limit": "held = 0\nfor _ in range(20):\n    if (i := call('shmget', 0, 64 << 20, 0o1600)) < 0:\n        break\n"
    "    LIBC.shmat.restype = ctypes.c_void_p\n    p = LIBC.shmat(i, None, 0)\n    if p in (None, 2 ** 64 - 1):\n        break\n"
    "    for k in range(0, 64 << 20, 4096):\n        ctypes.memset(p + k, 1, 1)\n    LIBC.shmdt(ctypes.c_void_p(p))\n    held += 64\n"
    + DONE.format("held > 512"),
    "a file in memory": DONE.format("call('memfd_create', b'x', 0) >= 0"),
    "a secret file in memory": DONE.format("call('memfd_secret', 0) >= 0"),
    "locked memory": "b = ctypes.create_string_buffer(8192)\n" + DONE.format("call('mlock', b, 8192) == 0"),
    "memory in large pipes": "import fcntl\nheld = 0\nfor _ in range(12):\n    r, w = os.pipe()\n    held += fcntl.fcntl(w, 1031, 1 << 20)\n"
    + DONE.format("held > 4 << 20"),
    "100 GB": "x = bytearray(100 << 30)\nreturn 'done'",
    "100 GB in pieces": "x = []\nwhile len(x) < 1600:\n    x.append(bytearray(1 << 26))\nreturn 'done'",
    # the kernel's other doors
    "userfaultfd": DONE.format("call('userfaultfd', 1) >= 0"),
    "bpf": DONE.format("call('bpf', 0, ctypes.create_string_buffer(128), 128) >= 0"),
    "perf": "a = ctypes.create_string_buffer(128)\na[4] = 128\n"
    + DONE.format("call('perf_event_open', a, 0, -1, -1, 0) >= 0"),
    "a key": DONE.format("call('add_key', b'user', b'espalier', b'x', 1, -2) > 0"),
    "the session's keys": DONE.format("call('keyctl', 0, -3, 1, 0, 0) > 0"),
    "the clock of the machine": "t = (ctypes.c_long * 2)(0, 0)\n" + DONE.format("call('clock_settime', 7, t) == 0"),
    "the name of the machine, changed": DONE.format("call('sethostname', b'x', 1) == 0"),
    "a module of the kernel": DONE.format("call('init_module', b'', 0, b'') in (0, -8, -14, -22)"),
    "ports of the machine": DONE.format("call('iopl', 3) == 0"),
    "accounting": DONE.format("call('acct', 0) == 0"),
    "flush all disks": DONE.format("call('sync') == 0"),
    "lock a file of the interpreter": _opened
    + "import fcntl\nfcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\nreturn 'done'",
    "a lease on a file of the interpreter": _opened
    + "import fcntl\nfcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)\nreturn 'done'",
    "be told of changes of a folder": "import fcntl\nfd = os.open(os.path.dirname(os.__file__), os.O_RDONLY)\nfcntl.fcntl(fd, fcntl.F_NOTIFY, 1)\nreturn 'done'",
    "type into the terminal": "import fcntl\nfor fd in range(3):\n    fcntl.ioctl(fd, 0x5412, b'x')\nreturn 'done'",
    "calls of 32-bit programs": "import mmap\nif ARM:\n    return 'no'\nm = mmap.mmap(-1, 4096, 0x22 | 0x40, 7)\n"
    "a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
    "code = b'\\x53\\xb8' + (20).to_bytes(4, 'little') + b'\\xcd\\x80\\x5b\\xc3'\nm[:len(code)] = code\n"
    + DONE.format("ctypes.CFUNCTYPE(ctypes.c_int)(a)() > 0"),
    "calls of the x32 ABI": DONE.format("LIBC.syscall(ctypes.c_long(0x40000000 + 39)) > 0"),
}
CONTROL = "control"
_CONTROL = "import math\n" + DONE.format("PORT > 0 and call('getcpu', 0, 0, 0) == 0 and math.gcd(4, 6) == 2")


@contextlib.contextmanager
def targets() -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder with a file of this user, servers on the loopback and on Unix sockets: (the folder, the names that a body
    may use)."""
    os.environ["ESPALIER_SECRET"] = "canary"
    with tempfile.TemporaryDirectory(prefix="espalier-target-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "canary").write_text("secret")
        (folder / "empty").mkdir()
        with contextlib.suppress(OSError):  # a file system without attributes
            os.setxattr(folder / "canary", "user.mark", b"1")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(str(folder / "socket"))
        named.listen()
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("\0" + folder.name)
        abstract.listen()
        yield (
            folder,
            {
                "FILE": str(folder / "canary"),
                "FOLDER": name,
                "HOME": os.path.expanduser("~"),
                "PORT": tcp.getsockname()[1],
                "SOCKET": str(folder / "socket"),
                "ABSTRACT": folder.name,
                "PARENT": os.getpid(),
                "MACHINE": os.uname().nodename,
                "EXECUTABLE": os.path.realpath(sys.executable),
            },
        )
    os.environ.pop("ESPALIER_SECRET", None)


def state(folder: Path) -> list[tuple]:
    """Names, modes, owners, times, attributes and contents of all that lies in a folder."""
    out = []
    for path in sorted([folder, *folder.rglob("*")]):
        s = path.lstat()
        held = path.read_bytes() if stat.S_ISREG(s.st_mode) else b""
        marks = [(k, os.getxattr(path, k, follow_symlinks=False)) for k in os.listxattr(path, follow_symlinks=False)]
        out.append(
            (str(path), s.st_mode, s.st_uid, s.st_gid, s.st_nlink, s.st_mtime_ns, s.st_atime_ns, s.st_size, marks, held)
        )
    return out


def source(name: str, names: dict[str, Any]) -> str:
    """The program of an attack: `f()` returns "done", or "no" and why not."""
    lines = "\n".join(f"        {line}" for line in (_CONTROL if name == CONTROL else ATTACKS[name]).splitlines())
    values = "".join(f"{k} = {v!r}\n" for k, v in names.items())
    return f"{PRELUDE}{values}def f():\n    try:\n{lines}\n    except BaseException as e:\n        return 'no: ' + repr(e)\n"


def attack(name: str, layer: str) -> str:
    """What an attack reached in a layer: "" where nothing, else in words. Has targets of its own, so attacks may run side
    by side."""
    with targets() as (folder, names):
        state(folder)  # the first look moves the times of access
        before = state(folder)
        outcome = sandbox.run_in(layer, source(name, names), "f", [[]], sandbox.Limits(seconds=1, wall=60))
        after = state(folder)
    if outcome.status not in ("ok", "error", "timeout"):
        return f"did not run: {outcome}"
    result = outcome.results[0].get("value") if outcome.results else None
    if result == "done":
        return "says that it was done"
    return "" if before == after else "changed a file of the user"


def main() -> None:
    """`python tests/support/sandbox_attacks.py LAYER ...`: {layer: {attack: what it reached}} as JSON. Needs no package, so that
    any interpreter and any user can run it."""
    out = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for layer in sys.argv[1:]:
            names = [*ATTACKS, CONTROL]
            out[layer] = dict(zip(names, pool.map(partial(attack, layer=layer), names), strict=True))
    print(json.dumps(out))


if __name__ == "__main__":
    main()
