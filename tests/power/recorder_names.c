/* The calls that change names and times. See recorder.c. */
#include "recorder.h"

#define MOVING(call, kind, from_folder, from, to_folder, to)                                                           \
    char one[PATH_MAX], two[PATH_MAX];                                                                                 \
    int is_one = below(from_folder, from, one), is_two = below(to_folder, to, two), result;                            \
    RECORDED(result, call, result == 0 && (is_one || is_two), moved(kind, is_one && is_two, one, two));                \
    return result

static void moved(char kind, int inside, const char *one, const char *two) {
    note(inside ? kind : '?', -1, 0, 0, one, strlen(one), two, strlen(two));
}

int rename(const char *from, const char *to) {
    REAL(int (*)(const char *, const char *), "rename", NULL);
    MOVING(behind(from, to), 'R', AT_FDCWD, from, AT_FDCWD, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(int (*)(int, const char *, int, const char *), "renameat", NULL);
    MOVING(behind(from_folder, from, to_folder, to), 'R', from_folder, from, to_folder, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    REAL(int (*)(int, const char *, int, const char *, unsigned), "renameat2", NULL);
    char kind = flags & ~1u ? '?' : 'R'; /* 1 is RENAME_NOREPLACE; the others do more than rename */
    MOVING(behind(from_folder, from, to_folder, to, flags), kind, from_folder, from, to_folder, to);
}

int link(const char *from, const char *to) {
    REAL(int (*)(const char *, const char *), "link", NULL);
    MOVING(behind(from, to), 'L', AT_FDCWD, from, AT_FDCWD, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    REAL(int (*)(int, const char *, int, const char *, int), "linkat", NULL);
    MOVING(behind(from_folder, from, to_folder, to, flags), 'L', from_folder, from, to_folder, to);
}

int symlink(const char *to, const char *path) {
    REAL(int (*)(const char *, const char *), "symlink", NULL);
    OF_PATH(int, behind(to, path), path, '?', 0);
}

int unlink(const char *path) {
    REAL(int (*)(const char *), "unlink", NULL);
    OF_PATH(int, behind(path), path, 'U', 0);
}

int rmdir(const char *path) {
    REAL(int (*)(const char *), "rmdir", NULL);
    OF_PATH(int, behind(path), path, 'U', 0);
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(int (*)(int, const char *, int), "unlinkat", NULL);
    char full[PATH_MAX];
    int is_below = below(folder, path, full), result;
    RECORDED(result, behind(folder, path, flags), result == 0 && is_below, note_path('U', -1, 0, full));
    return result;
}

int mkdir(const char *path, mode_t mode) {
    REAL(int (*)(const char *, mode_t), "mkdir", NULL);
    OF_PATH(int, behind(path, mode), path, 'D', 0);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int (*)(int, const char *, mode_t), "mkdirat", NULL);
    char full[PATH_MAX];
    int is_below = below(folder, path, full), result;
    RECORDED(result, behind(folder, path, mode), result == 0 && is_below, note_path('D', -1, 0, full));
    return result;
}

/* ---------------------------------------------------------------- times */

static int64_t nanoseconds(const struct timespec times[2]) {
    return times ? (int64_t)times[1].tv_sec * 1000000000 + times[1].tv_nsec : 0;
}

static int is_a_time(const struct timespec times[2]) {
    return times && times[1].tv_nsec != UTIME_NOW && times[1].tv_nsec != UTIME_OMIT;
}

int futimens(int fd, const struct timespec times[2]) {
    REAL(int (*)(int, const struct timespec[2]), "futimens", NULL);
    if (!is_followed(fd) || !is_a_time(times))
        return behind(fd, times);
    int result;
    RECORDED(result, behind(fd, times), result == 0, note('N', fd, nanoseconds(times), 0, "", 0, "", 0));
    return result;
}

int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
    REAL(int (*)(int, const char *, const struct timespec[2], int), "utimensat", NULL);
    char full[PATH_MAX];
    int is_below = below(folder, path, full), result;
    RECORDED(result, behind(folder, path, times, flags), result == 0 && is_below && is_a_time(times),
             note_path('N', -1, nanoseconds(times), full));
    return result;
}
