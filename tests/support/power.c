/* Preloaded into a process, this writes down every change of files below POWER_ROOT: what is written, flushed, renamed,
 * made and removed, in order. tests/support/power.py reads it. A record is
 *
 *     char what, int64 number, uint32 n1, uint32 n2, n1 bytes, n2 bytes
 *
 *     C path, inode         a file is made            R path, path   renamed          M path   a folder is made
 *     W path, at, bytes     written                   L path, path   linked           D path   a folder is removed
 *     T path, size          cut or lengthened         Y path, text   a symbolic link  U path   a file is removed
 *     S path, inode         fsync or fdatasync        A              sync, syncfs     X path   mapped to be written
 *
 * What goes to the kernel past the C library is not seen; a rename of that kind is known by the inode at the next flush.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static char root[PATH_MAX], said[PATH_MAX], into[PATH_MAX];
static int out = -1;

__attribute__((constructor)) static void begin(void) {
    const char *r = getenv("POWER_ROOT"), *s = getenv("POWER_SAID"), *l = getenv("POWER_LOG");
    if (!r || !s || !l) return;
    snprintf(root, sizeof root, "%s", r);
    snprintf(said, sizeof said, "%s", s);
    snprintf(into, sizeof into, "%s", l);
    out = syscall(SYS_openat, AT_FDCWD, into, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (out >= 0) { int high = syscall(SYS_fcntl, out, F_DUPFD_CLOEXEC, 900); syscall(SYS_close, out); out = high; }
}

static int ours(const char *path) {
    size_t n = strlen(root);
    return out >= 0 && n && ((!strncmp(path, root, n) && (path[n] == '/' || !path[n])) || !strcmp(path, said));
}

static void put(char what, int64_t number, const char *a, uint32_t n1, const void *b, uint32_t n2) {
    char head[17];
    memcpy(head, &what, 1); memcpy(head + 1, &number, 8); memcpy(head + 9, &n1, 4); memcpy(head + 13, &n2, 4);
    struct iovec v[3] = {{head, 17}, {(void *)a, n1}, {(void *)b, n2}};
    int kept = errno;
    syscall(SYS_writev, out, v, 3);
    errno = kept;
}

/* The path behind a file descriptor, "" where there is none any more. */
static const char *behind(int fd, char *path) {
    char link[64];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    errno = kept;
    path[n > 0 ? n : 0] = 0;
    return n > 10 && !strcmp(path + n - 10, " (deleted)") ? "" : path;
}

/* The absolute path of a name: its folder resolved, its last part as it is. */
static void whole(int at, const char *name, char *path) {
    char joined[2 * PATH_MAX], folder[PATH_MAX], base[PATH_MAX];
    int kept = errno;
    if (name[0] == '/') snprintf(joined, sizeof joined, "%s", name);
    else {
        if (at == AT_FDCWD) { if (syscall(SYS_getcwd, base, sizeof base) < 0) base[0] = 0; }
        else if (!*behind(at, base)) base[0] = 0;
        snprintf(joined, sizeof joined, "%s/%s", base, name);
    }
    size_t n = strlen(joined);
    while (n > 1 && joined[n - 1] == '/') joined[--n] = 0;
    char *slash = strrchr(joined, '/');
    if (slash) {
        snprintf(base, sizeof base, "%s", slash + 1);
        *slash = 0;
        if (realpath(*joined ? joined : "/", folder)) snprintf(path, PATH_MAX, "%s/%s", strcmp(folder, "/") ? folder : "", base);
        else path[0] = 0;
    } else path[0] = 0;
    errno = kept;
}

static int there(const char *path) {
    struct stat s;
    int kept = errno, found = syscall(SYS_newfstatat, AT_FDCWD, path, &s, 0) == 0;
    errno = kept;
    return found;
}

static int64_t inode(int fd) {
    struct stat s;
    int kept = errno;
    int64_t n = syscall(SYS_fstat, fd, &s) ? 0 : (int64_t)s.st_ino;
    errno = kept;
    return n;
}

static int opened(int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX], real[PATH_MAX];
    int writes = out >= 0 && (flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE, known = 0;
    if (writes) { whole(at, name, path); known = there(path); }
    int fd = syscall(SYS_openat, at, name, flags, mode);
    if (fd >= 0 && writes && ours(path)) {
        const char *p = known ? behind(fd, real) : path;
        if (!known) put('C', inode(fd), path, strlen(path), "", 0);
        else if ((flags & O_TRUNC) && ours(p)) put('T', 0, p, strlen(p), "", 0);
    }
    return fd;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list v; va_start(v, flags); mode = va_arg(v, mode_t); va_end(v); }
int open(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags | O_LARGEFILE, mode); }
int openat(int at, const char *name, int flags, ...) { MODE return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE return opened(at, name, flags | O_LARGEFILE, mode); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static void wrote(int fd, const void *data, ssize_t n, off_t at) {
    char path[PATH_MAX];
    if (n <= 0 || out < 0) return;
    const char *p = behind(fd, path);
    if (!ours(p)) return;
    if (at < 0) at = syscall(SYS_lseek, fd, 0, SEEK_CUR) - n;
    put('W', at, p, strlen(p), data, n);
}

ssize_t write(int fd, const void *b, size_t n) { ssize_t r = syscall(SYS_write, fd, b, n); wrote(fd, b, r, -1); return r; }
ssize_t pwrite(int fd, const void *b, size_t n, off_t at) { ssize_t r = syscall(SYS_pwrite64, fd, b, n, at); wrote(fd, b, r, at); return r; }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t at) { return pwrite(fd, b, n, at); }

static void gathered(int fd, const struct iovec *v, int count, ssize_t n, off_t at) {
    if (n <= 0 || out < 0) return;
    char *all = malloc(n), *to = all;
    size_t left = n;
    for (int i = 0; i < count && left; i++) {
        size_t k = v[i].iov_len < left ? v[i].iov_len : left;
        memcpy(to, v[i].iov_base, k); to += k; left -= k;
    }
    wrote(fd, all, n, at);
    free(all);
}
ssize_t writev(int fd, const struct iovec *v, int n) { ssize_t r = syscall(SYS_writev, fd, v, n); gathered(fd, v, n, r, -1); return r; }
ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) { REAL(pwritev); ssize_t r = real(fd, v, n, at); gathered(fd, v, n, r, at); return r; }

/* What the kernel copied by itself is read back. */
static void copied(int fd, ssize_t n, off_t at) {
    char link[64];
    if (n <= 0 || out < 0) return;
    if (at < 0) at = syscall(SYS_lseek, fd, 0, SEEK_CUR) - n;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int again = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    if (again < 0) return;
    char *all = malloc(n);
    ssize_t got = syscall(SYS_pread64, again, all, n, at);
    syscall(SYS_close, again);
    if (got == n) wrote(fd, all, n, at);
    free(all);
}
ssize_t sendfile(int o, int i, off_t *at, size_t n) { ssize_t r = syscall(SYS_sendfile, o, i, at, n); copied(o, r, -1); return r; }
ssize_t sendfile64(int o, int i, off64_t *at, size_t n) { return sendfile(o, i, at, n); }
ssize_t copy_file_range(int i, off64_t *ia, int o, off64_t *oa, size_t n, unsigned f) {
    ssize_t r = syscall(SYS_copy_file_range, i, ia, o, oa, n, f);
    copied(o, r, oa ? *oa - r : -1);
    return r;
}

static void resized(int fd, const char *name, off_t size) {
    char path[PATH_MAX];
    const char *p = path;
    if (out < 0) return;
    if (name) { if (!realpath(name, path)) return; } else p = behind(fd, path);
    if (ours(p)) put('T', size, p, strlen(p), "", 0);
}
int ftruncate(int fd, off_t size) { int r = syscall(SYS_ftruncate, fd, size); if (!r) resized(fd, NULL, size); return r; }
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int truncate(const char *name, off_t size) { int r = syscall(SYS_truncate, name, size); if (!r) resized(-1, name, size); return r; }
int truncate64(const char *name, off64_t size) { return truncate(name, size); }
int fallocate(int fd, int mode, off_t at, off_t n) {
    struct stat s;
    int r = syscall(SYS_fallocate, fd, mode, at, n);
    if (!r && !syscall(SYS_fstat, fd, &s)) resized(fd, NULL, s.st_size);
    return r;
}
int posix_fallocate(int fd, off_t at, off_t n) { return fallocate(fd, 0, at, n) ? errno : 0; }

static void flushed(int fd) {
    char path[PATH_MAX];
    if (out < 0) return;
    const char *p = behind(fd, path);
    if (ours(p)) put('S', inode(fd), p, strlen(p), "", 0);
}
int fsync(int fd) { int r = syscall(SYS_fsync, fd); if (!r) flushed(fd); return r; }
int fdatasync(int fd) { int r = syscall(SYS_fdatasync, fd); if (!r) flushed(fd); return r; }
void sync(void) { syscall(SYS_sync); if (out >= 0) put('A', 0, "", 0, "", 0); }
int syncfs(int fd) { int r = syscall(SYS_syncfs, fd); if (!r && out >= 0) put('A', 0, "", 0, "", 0); return r; }

static void one(char what, int at, const char *name) {
    char path[PATH_MAX];
    if (out < 0) return;
    whole(at, name, path);
    if (ours(path)) put(what, 0, path, strlen(path), "", 0);
}
static void two(char what, const char *a, const char *b) {
    if (out >= 0 && (ours(a) || ours(b))) put(what, 0, a, strlen(a), b, strlen(b));
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    char x[PATH_MAX], y[PATH_MAX];
    if (out >= 0) { whole(a, from, x); whole(b, to, y); }
    int r = syscall(SYS_renameat2, a, from, b, to, flags);
    if (!r) two('R', x, y);
    return r;
}
int renameat(int a, const char *from, int b, const char *to) { return renameat2(a, from, b, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    char x[PATH_MAX], y[PATH_MAX];
    int r = syscall(SYS_linkat, a, from, b, to, flags);
    if (!r && out >= 0) { whole(a, from, x); whole(b, to, y); two('L', x, y); }
    return r;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }
int symlinkat(const char *text, int at, const char *name) {
    char path[PATH_MAX];
    int r = syscall(SYS_symlinkat, text, at, name);
    if (!r && out >= 0) { whole(at, name, path); if (ours(path)) put('Y', 0, path, strlen(path), text, strlen(text)); }
    return r;
}
int symlink(const char *text, const char *name) { return symlinkat(text, AT_FDCWD, name); }
int unlinkat(int at, const char *name, int flags) {
    int r = syscall(SYS_unlinkat, at, name, flags);
    if (!r) one(flags & AT_REMOVEDIR ? 'D' : 'U', at, name);
    return r;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) { int r = unlink(name); return r && (errno == EISDIR || errno == EPERM) ? rmdir(name) : r; }
int mkdirat(int at, const char *name, mode_t mode) { int r = syscall(SYS_mkdirat, at, name, mode); if (!r) one('M', at, name); return r; }
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

static void mapped(int prot, int flags, int fd) {
    char path[PATH_MAX];
    if (out < 0 || fd < 0 || !(prot & PROT_WRITE) || (flags & MAP_TYPE) == MAP_PRIVATE) return;
    const char *p = behind(fd, path);
    if (ours(p)) put('X', 0, p, strlen(p), "", 0);
}
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from) {
    mapped(prot, flags, fd);
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, from);
}
void *mmap64(void *at, size_t n, int prot, int flags, int fd, off64_t from) { return mmap(at, n, prot, flags, fd, from); }
