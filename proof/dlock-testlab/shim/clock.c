/*
 * Steps the wall clock of a program that this is preloaded into, while the program runs.
 *
 * The file that DLOCK_CLOCK_FILE names has two numbers: the offset in nanoseconds, and the time since
 * 1970 at which the clock stands still, in nanoseconds, or 0 if it runs. The file is mapped, so a step
 * is one write by whoever tests, and all programs with the file step at once.
 * The monotonic clocks stay as they are: to step those would be a fault that no machine has.
 *
 * Nothing here takes a lock, allocates or calls the library for the time, so it may run in signal
 * handlers and before the other constructors have run. Without the file there is no offset.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

_Static_assert(sizeof(time_t) == 8, "the calls for short times have other names");

static const int64_t none[2] = {0, 0};
static const int64_t *numbers = none;

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("DLOCK_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        numbers = mapped;
}

/* What the system says, with the offset, unless the clock stands still; never before 1970. */
static int64_t now(clockid_t clock)
{
    int64_t still = __atomic_load_n(&numbers[1], __ATOMIC_RELAXED);
    if (still > 0)
        return still;
    struct timespec true_time = {0, 0};
    syscall(SYS_clock_gettime, clock, &true_time);
    int64_t time = true_time.tv_sec * SECOND + true_time.tv_nsec
        + __atomic_load_n(&numbers[0], __ATOMIC_RELAXED);
    return time < 0 ? 0 : time;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return (int)syscall(SYS_clock_gettime, clock, time);
    int64_t stepped = now(clock);
    time->tv_sec = stepped / SECOND;
    time->tv_nsec = stepped % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    (void)zone;
    int64_t stepped = now(CLOCK_REALTIME);
    time->tv_sec = stepped / SECOND;
    time->tv_usec = stepped % SECOND / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    time_t stepped = now(CLOCK_REALTIME) / SECOND;
    if (seconds)
        *seconds = stepped;
    return stepped;
}
