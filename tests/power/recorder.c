/* Loaded into a process (LD_PRELOAD), writes down each call that changes files below one folder, in the order in which
 * the kernel took them, with what was written. Whoever reads it can say what a disk may have held at any moment.
 *
 *   RECORDER_ROOT   the folder, as an absolute path without links
 *   RECORDER_LOG    the file that the calls are written to; not below the folder
 *
 * One entry: kind (1 byte), fd (int32), a and b (int64), the lengths of two texts (uint32), the texts. Native order.
 * Only calls that succeeded are written down. What the recorder knows to change files and cannot describe is
 * written down as '?', so that no reader takes an incomplete recording for a complete one.
 */
#include "recorder.h"

pthread_mutex_t recorder_lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
int recorder_log = -1;
char recorder_follows[MOST_FDS];

void give_up(const char *why) {
    fprintf(stderr, "recorder: %s\n", why);
    _exit(97);
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("RECORDER_ROOT"), *log = getenv("RECORDER_LOG");
    if (!folder || !log)
        return;
    root_length = strlen(folder);
    if (root_length >= sizeof root)
        give_up("the path of the folder is too long");
    memcpy(root, folder, root_length + 1);
    recorder_log = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (recorder_log < 0)
        give_up("the log cannot be opened");
    int high = fcntl(recorder_log, F_DUPFD_CLOEXEC, 1000); /* out of the way of the program's own */
    if (high >= 0) {
        syscall(SYS_close, recorder_log);
        recorder_log = high;
    }
}

static void write_all(const void *bytes, size_t length) {
    const char *at = bytes;
    while (length) {
        long n = syscall(SYS_write, recorder_log, at, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            give_up("the log cannot be written");
        at += n;
        length -= n;
    }
}

void note(char kind, int fd, int64_t a, int64_t b, const void *one, size_t one_length, const void *two,
          size_t two_length) {
    int kept = errno;
    struct __attribute__((packed)) {
        char kind;
        int32_t fd;
        int64_t a, b;
        uint32_t one, two;
    } head = {kind, fd, a, b, (uint32_t)one_length, (uint32_t)two_length};
    write_all(&head, sizeof head);
    write_all(one, one_length);
    write_all(two, two_length);
    errno = kept;
}

void note_path(char kind, int fd, int64_t a, const char *path) {
    note(kind, fd, a, 0, path, strlen(path), "", 0);
}

/* The path as an absolute one, without following a link in its last part. Whether it is below the root. */
int below(int folder, const char *path, char *full) {
    if (recorder_log < 0 || !path)
        return 0;
    int kept = errno;
    if (path[0] == '/') {
        snprintf(full, PATH_MAX, "%s", path);
    } else {
        char start[PATH_MAX] = "";
        if (folder == AT_FDCWD) {
            if (!getcwd(start, sizeof start))
                start[0] = 0;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t n = readlink(link, start, sizeof start - 1);
            start[n > 0 ? n : 0] = 0;
        }
        if (strlen(start) + strlen(path) + 2 > PATH_MAX)
            give_up("a path is too long");
        strcpy(full, start);
        strcat(full, "/");
        strcat(full, path);
    }
    errno = kept;
    return strncmp(full, root, root_length) == 0 && (full[root_length] == '/' || full[root_length] == 0);
}

int is_followed(int fd) { return recorder_log >= 0 && fd >= 0 && fd < MOST_FDS && recorder_follows[fd]; }

void *real(const char *name, const char *otherwise) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found && otherwise)
        found = dlsym(RTLD_NEXT, otherwise);
    if (!found)
        give_up(name);
    return found;
}

/* ---------------------------------------------------------------- marks */

/* For the program: writes down that something has happened, between the calls before and the calls after. */
void recorder_mark(const char *text, size_t length) {
    if (recorder_log < 0)
        return;
    pthread_mutex_lock(&recorder_lock);
    note('M', -1, 0, 0, text, length, "", 0);
    pthread_mutex_unlock(&recorder_lock);
}

/* ---------------------------------------------------------------- opening and closing */

typedef int (*open_type)(const char *, int, ...);
typedef int (*openat_type)(int, const char *, int, ...);

static void opened(int fd, int flags, const char *path, int is_below) {
    if (fd >= MOST_FDS)
        give_up("too many open files");
    recorder_follows[fd] = is_below;
    if (!is_below)
        return;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        note_path('?', fd, 0, "O_TMPFILE");
    else
        note_path('O', fd, flags, path);
}

#define OPENING(call, folder, path, flags)                                                                             \
    char full[PATH_MAX];                                                                                               \
    int is_below = below(folder, path, full), fd;                                                                      \
    RECORDED(fd, call, fd >= 0 && recorder_log >= 0, opened(fd, flags, full, is_below));                               \
    return fd

#define MODE(last)                                                                                                     \
    mode_t mode = 0;                                                                                                   \
    if (((last) & O_CREAT) || ((last) & O_TMPFILE) == O_TMPFILE) {                                                     \
        va_list more;                                                                                                  \
        va_start(more, last);                                                                                          \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }

int open(const char *path, int flags, ...) {
    MODE(flags);
    REAL(open_type, "open", NULL);
    OPENING(behind(path, flags, mode), AT_FDCWD, path, flags);
}

int open64(const char *path, int flags, ...) {
    MODE(flags);
    REAL(open_type, "open64", "open");
    OPENING(behind(path, flags, mode), AT_FDCWD, path, flags);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE(flags);
    REAL(openat_type, "openat", NULL);
    OPENING(behind(folder, path, flags, mode), folder, path, flags);
}

int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags);
    REAL(openat_type, "openat64", "openat");
    OPENING(behind(folder, path, flags, mode), folder, path, flags);
}

/* What a compiler makes of `open` where it checks the arguments. */
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char *path, int flags) { return openat64(folder, path, flags); }

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

static void closed(int fd) {
    recorder_follows[fd] = 0;
    note('C', fd, 0, 0, "", 0, "", 0);
}

int close(int fd) {
    REAL(int (*)(int), "close", NULL);
    if (!is_followed(fd))
        return behind(fd);
    int result;
    RECORDED(result, behind(fd), 1, closed(fd));
    return result;
}

int dup(int fd) {
    REAL(int (*)(int), "dup", NULL);
    int result;
    RECORDED(result, behind(fd), result >= 0 && is_followed(fd), note_path('?', fd, 0, "dup"));
    return result;
}

/* ---------------------------------------------------------------- syncing */

#define SYNCING(call)                                                                                                  \
    if (!is_followed(fd))                                                                                              \
        return call;                                                                                                   \
    int result;                                                                                                        \
    RECORDED(result, call, result == 0, note('S', fd, 0, 0, "", 0, "", 0));                                            \
    return result

int fsync(int fd) {
    REAL(int (*)(int), "fsync", NULL);
    SYNCING(behind(fd));
}

int fdatasync(int fd) {
    REAL(int (*)(int), "fdatasync", NULL);
    SYNCING(behind(fd));
}
