/* Counts the calls that change files below a folder, and lets one of them fail, or more.

   Built by injected.py and loaded by LD_PRELOAD: it takes in what Python, HDF5 and Arrow do alike. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* What becomes of the call with the number `target`, or of all from it on. */
enum { NOTHING, FAILS_ONCE, FULL_FROM, READ_ONLY_FROM, SIGNAL };

typedef void (*watcher)(long, const char *, const char *);

static char under[PATH_MAX];
static int mode, code;
static long target, count;
static watcher watch;
static __thread int inside;

void faults_arm(const char *folder, int what, long which, int number, watcher told) {
    snprintf(under, sizeof under, "%s/", folder);
    mode = what, target = which, code = number, watch = told, count = 0;
}

long faults_disarm(void) {
    under[0] = 0;
    return count;
}

/* Whether a path, relative to a folder's descriptor, lies below the folder that is watched. */
static int below(int folder, const char *path, char *whole) {
    char link[64];
    ssize_t length = 0;
    if (!under[0] || inside)
        return 0;
    if (path && path[0] == '/') {
        snprintf(whole, PATH_MAX, "%s", path);
    } else {
        if (folder == AT_FDCWD)
            return 0;
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        length = readlink(link, whole, PATH_MAX - 1);
        if (length < 0)
            return 0;
        whole[length] = 0;
        if (path)
            snprintf(whole + length, PATH_MAX - length, "/%s", path);
    }
    /* The folder itself is made and removed too. */
    size_t own = strlen(under) - 1;
    return !strncmp(whole, under, own) && (whole[own] == '/' || !whole[own]);
}

/* What is to become of a call: 0, it is made; 1, it fails; 2, half of it is made (a write). */
static int fate(const char *name, const char *path, int takes_space) {
    long number = count++;
    if (watch) {
        inside = 1;
        watch(number, name, path);
        inside = 0;
    }
    if (number == target && mode == SIGNAL)
        raise(code);
    if (mode == FAILS_ONCE && number == target) {
        errno = code;
        return 1;
    }
    if (number >= target && (mode == READ_ONLY_FROM || (mode == FULL_FROM && takes_space))) {
        errno = code;
        return mode == FULL_FROM && number == target ? 2 : 1;
    }
    return 0;
}

#define WRAPPED(name, label, folder, path, space, types, values)                  \
    int name types {                                                              \
        int(*real) types = (int(*) types)dlsym(RTLD_NEXT, #name);                 \
        char whole[PATH_MAX];                                                     \
        if (below(folder, path, whole) && fate(label, whole, space))              \
            return -1;                                                            \
        return real values;                                                       \
    }

#define OPENED(name)                                                              \
    int name(const char *path, int flags, ...) {                                  \
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);            \
        char whole[PATH_MAX];                                                     \
        va_list more;                                                             \
        va_start(more, flags);                                                    \
        mode_t mode_of_file = flags & O_CREAT ? va_arg(more, mode_t) : 0;         \
        va_end(more);                                                             \
        int writes = (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;          \
        if (writes && below(AT_FDCWD, path, whole) &&                             \
            fate("open", whole, !!(flags & O_CREAT)))                             \
            return -1;                                                            \
        return real(path, flags, mode_of_file);                                   \
    }

#define WRITTEN(name, types, half, values)                                        \
    ssize_t name types {                                                          \
        ssize_t(*real) types = (ssize_t(*) types)dlsym(RTLD_NEXT, #name);         \
        char whole[PATH_MAX];                                                     \
        int what = below(file, NULL, whole) ? fate("write", whole, 1) : 0;        \
        if (what == 2 && size > 1)                                                \
            return real half;                                                     \
        return what ? -1 : real values;                                           \
    }

OPENED(open)
OPENED(open64)
WRITTEN(write, (int file, const void *from, size_t size), (file, from, size / 2),
        (file, from, size))
WRITTEN(pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size / 2, at),
        (file, from, size, at))
WRITTEN(pwrite64, (int file, const void *from, size_t size, off64_t at),
        (file, from, size / 2, at), (file, from, size, at))
WRAPPED(ftruncate, "truncate", file, NULL, 1, (int file, off_t size), (file, size))
WRAPPED(ftruncate64, "truncate", file, NULL, 1, (int file, off64_t size), (file, size))
WRAPPED(fsync, "fsync", file, NULL, 0, (int file), (file))
WRAPPED(rename, "rename", AT_FDCWD, to, 0, (const char *from, const char *to), (from, to))
WRAPPED(unlink, "unlink", AT_FDCWD, path, 0, (const char *path), (path))
WRAPPED(unlinkat, "unlink", folder, path, 0, (int folder, const char *path, int flags),
        (folder, path, flags))
WRAPPED(mkdir, "mkdir", AT_FDCWD, path, 1, (const char *path, mode_t bits), (path, bits))
WRAPPED(rmdir, "rmdir", AT_FDCWD, path, 0, (const char *path), (path))
