/* The calls that write to files. See recorder.c. */
#include "recorder.h"

static void wrote(int fd, int64_t at, const void *bytes, ssize_t length) {
    if (at < 0) { /* it was written where the file stood, and it stands behind it now */
        int kept = errno;
        at = lseek(fd, 0, SEEK_CUR) - length;
        errno = kept;
    }
    note('W', fd, at, 0, bytes, length, "", 0);
}

#define WRITING(call, at)                                                                                              \
    if (!is_followed(fd))                                                                                              \
        return call;                                                                                                   \
    ssize_t result;                                                                                                    \
    RECORDED(result, call, result > 0, wrote(fd, at, bytes, result));                                                  \
    return result

ssize_t write(int fd, const void *bytes, size_t length) {
    REAL(ssize_t(*)(int, const void *, size_t), "write", NULL);
    WRITING(behind(fd, bytes, length), -1);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    REAL(ssize_t(*)(int, const void *, size_t, off_t), "pwrite", NULL);
    WRITING(behind(fd, bytes, length, at), at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    REAL(ssize_t(*)(int, const void *, size_t, off64_t), "pwrite64", "pwrite");
    WRITING(behind(fd, bytes, length, at), at);
}

/* Several pieces are written down as so many writes, side by side. */
static void wrote_pieces(int fd, int64_t at, const struct iovec *pieces, int count, ssize_t length) {
    if (at < 0)
        at = lseek(fd, 0, SEEK_CUR) - length;
    for (int i = 0; i < count && length > 0; i++) {
        ssize_t n = (ssize_t)pieces[i].iov_len < length ? (ssize_t)pieces[i].iov_len : length;
        if (n)
            note('W', fd, at, 0, pieces[i].iov_base, n, "", 0);
        at += n;
        length -= n;
    }
}

#define WRITING_PIECES(call, at)                                                                                       \
    if (!is_followed(fd))                                                                                              \
        return call;                                                                                                   \
    ssize_t result;                                                                                                    \
    RECORDED(result, call, result > 0, wrote_pieces(fd, at, pieces, count, result));                                   \
    return result

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    REAL(ssize_t(*)(int, const struct iovec *, int), "writev", NULL);
    WRITING_PIECES(behind(fd, pieces, count), -1);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at) {
    REAL(ssize_t(*)(int, const struct iovec *, int, off_t), "pwritev", NULL);
    WRITING_PIECES(behind(fd, pieces, count, at), at);
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t at) {
    REAL(ssize_t(*)(int, const struct iovec *, int, off64_t), "pwritev64", "pwritev");
    WRITING_PIECES(behind(fd, pieces, count, at), at);
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags) {
    REAL(ssize_t(*)(int, const struct iovec *, int, off_t, int), "pwritev2", NULL);
    WRITING_PIECES(behind(fd, pieces, count, at, flags), at);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t at, int flags) {
    REAL(ssize_t(*)(int, const struct iovec *, int, off64_t, int), "pwritev64v2", "pwritev2");
    WRITING_PIECES(behind(fd, pieces, count, at, flags), at);
}

static void resized(int fd) {
    struct stat now;
    if (fstat(fd, &now) == 0)
        note('T', fd, now.st_size, 0, "", 0, "", 0);
}

#define RESIZING(call)                                                                                                 \
    if (!is_followed(fd))                                                                                              \
        return call;                                                                                                   \
    int result;                                                                                                        \
    RECORDED(result, call, result == 0, resized(fd));                                                                  \
    return result

int ftruncate(int fd, off_t length) {
    REAL(int (*)(int, off_t), "ftruncate", NULL);
    RESIZING(behind(fd, length));
}

int ftruncate64(int fd, off64_t length) {
    REAL(int (*)(int, off64_t), "ftruncate64", "ftruncate");
    RESIZING(behind(fd, length));
}

int posix_fallocate(int fd, off_t at, off_t length) {
    REAL(int (*)(int, off_t, off_t), "posix_fallocate", NULL);
    RESIZING(behind(fd, at, length));
}

int posix_fallocate64(int fd, off64_t at, off64_t length) {
    REAL(int (*)(int, off64_t, off64_t), "posix_fallocate64", "posix_fallocate");
    RESIZING(behind(fd, at, length));
}

/* Of the modes only the plain one leaves the bytes as they are. */
#define ALLOCATING(call)                                                                                               \
    if (!is_followed(fd))                                                                                              \
        return call;                                                                                                   \
    int result;                                                                                                        \
    RECORDED(result, call, result == 0, mode ? note_path('?', fd, 0, "fallocate with a mode") : resized(fd));          \
    return result

int fallocate(int fd, int mode, off_t at, off_t length) {
    REAL(int (*)(int, int, off_t, off_t), "fallocate", NULL);
    ALLOCATING(behind(fd, mode, at, length));
}

int fallocate64(int fd, int mode, off64_t at, off64_t length) {
    REAL(int (*)(int, int, off64_t, off64_t), "fallocate64", "fallocate");
    ALLOCATING(behind(fd, mode, at, length));
}

int truncate(const char *path, off_t length) {
    REAL(int (*)(const char *, off_t), "truncate", NULL);
    OF_PATH(int, behind(path, length), path, 'P', length);
}

int truncate64(const char *path, off64_t length) {
    REAL(int (*)(const char *, off64_t), "truncate64", "truncate");
    OF_PATH(int, behind(path, length), path, 'P', length);
}

ssize_t sendfile64(int fd, int from, off64_t *at, size_t length) {
    REAL(ssize_t(*)(int, int, off64_t *, size_t), "sendfile64", "sendfile");
    ssize_t result;
    RECORDED(result, behind(fd, from, at, length), is_followed(fd), note_path('?', fd, 0, "sendfile"));
    return result;
}

ssize_t copy_file_range(int from, off64_t *at, int fd, off64_t *to, size_t length, unsigned flags) {
    REAL(ssize_t(*)(int, off64_t *, int, off64_t *, size_t, unsigned), "copy_file_range", NULL);
    ssize_t result;
    RECORDED(result, behind(from, at, fd, to, length, flags), is_followed(fd),
             note_path('?', fd, 0, "copy_file_range"));
    return result;
}

/* What is written to memory that the kernel writes to a file is not seen: the reader must know the file as one that
 * may hold anything. */
#define MAPPING(call)                                                                                                  \
    if (!is_followed(fd) || !(flags & MAP_SHARED) || !(access & PROT_WRITE))                                           \
        return call;                                                                                                   \
    void *result;                                                                                                      \
    RECORDED(result, call, result != MAP_FAILED, note('V', fd, 0, 0, "", 0, "", 0));                                   \
    return result

void *mmap(void *where, size_t length, int access, int flags, int fd, off_t at) {
    REAL(void *(*)(void *, size_t, int, int, int, off_t), "mmap", NULL);
    MAPPING(behind(where, length, access, flags, fd, at));
}

void *mmap64(void *where, size_t length, int access, int flags, int fd, off64_t at) {
    REAL(void *(*)(void *, size_t, int, int, int, off64_t), "mmap64", "mmap");
    MAPPING(behind(where, length, access, flags, fd, at));
}
