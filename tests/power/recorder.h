/* What the parts of the recorder share. See recorder.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utime.h>

#define MOST_FDS 65536

#pragma GCC visibility push(hidden) /* only the calls themselves are for the program */
extern pthread_mutex_t recorder_lock;   /* over a call and its entry: the order is the true one */
extern int recorder_log;                /* -1: nothing is recorded */
extern char recorder_follows[MOST_FDS]; /* whether an fd is of a file below the root */

void give_up(const char *why);
void note(char kind, int fd, int64_t a, int64_t b, const void *one, size_t one_length, const void *two,
          size_t two_length);
void note_path(char kind, int fd, int64_t a, const char *path);
int below(int folder, const char *path, char *full);
int is_followed(int fd);
void *real(const char *name, const char *otherwise);
#pragma GCC visibility pop

/* The function of that name behind ours; `otherwise` where a C library has no 64-bit variant of its own. */
#define REAL(type, name, otherwise)                                                                                    \
    static __typeof__(type) behind;                                                                                    \
    if (!behind)                                                                                                       \
        behind = (__typeof__(behind))real(name, otherwise)

#define RECORDED(result, call, succeeded, entry)                                                                       \
    do {                                                                                                               \
        pthread_mutex_lock(&recorder_lock);                                                                            \
        result = call;                                                                                                 \
        if (succeeded)                                                                                                 \
            entry;                                                                                                     \
        pthread_mutex_unlock(&recorder_lock);                                                                          \
    } while (0)

#define OF_PATH(result_type, call, path, kind, value)                                                                  \
    char full[PATH_MAX];                                                                                               \
    int is_below = below(AT_FDCWD, path, full);                                                                        \
    result_type result;                                                                                                \
    RECORDED(result, call, result == 0 && is_below, note_path(kind, -1, value, full));                                 \
    return result
