# The threads of flush_threads.py, and what they share with the hub. Nothing here needs the interpreter's
# lock, and no flush thread takes it.
from libc.errno cimport EINTR, ENOMEM, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from posix.unistd cimport close, read, write

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    ctypedef struct pthread_attr_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    int PTHREAD_CREATE_DETACHED
    int pthread_attr_init(pthread_attr_t *)
    int pthread_attr_destroy(pthread_attr_t *)
    int pthread_attr_setdetachstate(pthread_attr_t *, int)
    int pthread_attr_setstacksize(pthread_attr_t *, size_t)
    int pthread_create(pthread_t *, pthread_attr_t *, void *(*)(void *) noexcept nogil, void *)
    int pthread_mutex_init(pthread_mutex_t *, void *)
    int pthread_mutex_destroy(pthread_mutex_t *)
    int pthread_mutex_lock(pthread_mutex_t *)
    int pthread_mutex_unlock(pthread_mutex_t *)

cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    int sem_init(sem_t *, int, unsigned int)
    int sem_post(sem_t *)
    int sem_wait(sem_t *)
    int sem_destroy(sem_t *)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t *)
    int pthread_sigmask(int, sigset_t *, sigset_t *)

# A wheel that was made here also runs where the C library is older: these functions got new versions in glibc
# 2.32 and 2.34, which kept the first ones for older programs.
cdef extern from *:
    """
    #if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
    #ifdef __x86_64__
    #define GOMQ_FIRST(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
    #else
    #define GOMQ_FIRST(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
    #endif
    GOMQ_FIRST(pthread_attr_setstacksize);
    GOMQ_FIRST(pthread_create);
    GOMQ_FIRST(pthread_sigmask);
    GOMQ_FIRST(sem_destroy);
    GOMQ_FIRST(sem_init);
    GOMQ_FIRST(sem_post);
    GOMQ_FIRST(sem_wait);
    #endif
    """

cdef extern from *:
    """
    #include <errno.h>
    static inline void gomq_set_errno(int number) { errno = number; }
    """
    void set_errno "gomq_set_errno"(int) noexcept nogil

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_CLOEXEC, EFD_NONBLOCK
    int eventfd(unsigned int, int)

cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec

cdef extern from "<sys/timerfd.h>" nogil:
    int TFD_CLOEXEC, TFD_NONBLOCK
    struct itimerspec:
        timespec it_interval
        timespec it_value
    int timerfd_create(int, int)
    int timerfd_settime(int, int, itimerspec *, itimerspec *)

cdef extern from "<sys/mman.h>" nogil:
    int MS_SYNC
    int msync(void *, size_t, int)

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int)

# Flushes at one time: those of a cycle that was cut short may still run beside the next one's.
cdef enum:
    PLACES = 16
    MOST = 16  # threads
    STACK_BYTES = 65536

cdef enum:
    FREE = 0
    WANTED = 1
    RUNNING = 2
    DONE = 3

# A flush of one file: of its descriptor, or, where that is -1, of its mapping.
ctypedef struct Flush:
    int state
    int descriptor
    int number
    char *address
    size_t length

cdef struct Threads

# A thread, and the semaphore that it sleeps on.
cdef struct Worker:
    Threads *threads
    sem_t wake

# ``resting``: the workers that sleep. The worker that slept last is woken first: its data is still in the
# processor's cache, and while the others sleep a flush interrupts no processor on their behalf.
cdef struct Threads:
    pthread_mutex_t mutex
    int done
    int most
    int running
    bint is_over
    int rest_count
    Worker *resting[MOST]
    Worker workers[MOST]
    Flush flushes[PLACES]


cdef inline bint is_native() noexcept:
    return True


cdef inline void destroy(Threads *threads) noexcept nogil:
    cdef int number
    for number in range(MOST):
        sem_destroy(&threads.workers[number].wake)
    if threads.done >= 0:
        close(threads.done)
    pthread_mutex_destroy(&threads.mutex)
    free(threads)


cdef inline int flush(int descriptor, char *address, size_t length) noexcept nogil:
    cdef int answer
    while True:
        answer = fdatasync(descriptor) if descriptor >= 0 else msync(address, length, MS_SYNC)
        if answer == 0:
            return 0
        if errno != EINTR:
            return errno


cdef inline int next_wanted(Threads *threads) noexcept nogil:
    """The place of a flush that no thread has begun; -1 without one. With the mutex held."""
    cdef int place
    for place in range(PLACES):
        if threads.flushes[place].state == WANTED:
            return place
    return -1


cdef inline void *work(void *argument) noexcept nogil:
    cdef Worker *worker = <Worker *> argument
    cdef Threads *threads = worker.threads
    cdef Flush job
    cdef uint64_t count = 1
    cdef int place, number
    pthread_mutex_lock(&threads.mutex)
    while True:
        place = next_wanted(threads)
        if place >= 0:
            threads.flushes[place].state = RUNNING
            job = threads.flushes[place]
            pthread_mutex_unlock(&threads.mutex)

            number = flush(job.descriptor, job.address, job.length)

            pthread_mutex_lock(&threads.mutex)
            threads.flushes[place].number = number
            threads.flushes[place].state = DONE
            pthread_mutex_unlock(&threads.mutex)
            write(threads.done, &count, sizeof(count))
        elif threads.is_over:
            threads.running -= 1
            number = threads.running
            pthread_mutex_unlock(&threads.mutex)
            if number == 0:
                destroy(threads)
            return NULL
        else:
            threads.resting[threads.rest_count] = worker
            threads.rest_count += 1
            pthread_mutex_unlock(&threads.mutex)
            while sem_wait(&worker.wake) != 0:
                pass
        pthread_mutex_lock(&threads.mutex)


cdef inline int begin_thread(Threads *threads) noexcept nogil:
    """Returns 0, or the number of the error. With the mutex held, or before other threads know it."""
    cdef pthread_t thread
    cdef pthread_attr_t attributes
    cdef sigset_t every, before
    cdef int number = pthread_attr_init(&attributes)
    if number:
        return number
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED)
    pthread_attr_setstacksize(&attributes, STACK_BYTES)
    sigfillset(&every)  # signals are for threads that Python knows
    pthread_sigmask(SIG_SETMASK, &every, &before)
    number = pthread_create(&thread, &attributes, work, &threads.workers[threads.running])
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    pthread_attr_destroy(&attributes)
    if number == 0:
        threads.running += 1
    return number


cdef inline Threads *begin(int most) noexcept nogil:
    """Begin the first of ``most`` threads. Returns what the threads share; NULL with errno."""
    cdef Threads *threads = <Threads *> calloc(1, sizeof(Threads))
    cdef int number
    if threads == NULL:
        return NULL
    threads.most = min(most, MOST)
    for number in range(MOST):
        threads.workers[number].threads = threads
        sem_init(&threads.workers[number].wake, 0, 0)
    pthread_mutex_init(&threads.mutex, NULL)
    threads.done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    number = errno if threads.done < 0 else begin_thread(threads)
    if number == 0:
        return threads
    destroy(threads)
    set_errno(number)
    return NULL


cdef inline int ask(Threads *threads, int descriptor, char *address, size_t length) noexcept nogil:
    """Ask for a flush. Returns its place, or the negative number of an error."""
    cdef Worker *woken = NULL
    cdef int place = 0
    pthread_mutex_lock(&threads.mutex)
    while place < PLACES and threads.flushes[place].state != FREE:
        place += 1
    if place < PLACES:
        threads.flushes[place].descriptor = descriptor
        threads.flushes[place].address = address
        threads.flushes[place].length = length
        threads.flushes[place].state = WANTED
        if threads.rest_count > 0:
            threads.rest_count -= 1
            woken = threads.resting[threads.rest_count]
        elif threads.running < threads.most:
            begin_thread(threads)  # if it cannot begin, the others do the flush
    pthread_mutex_unlock(&threads.mutex)
    if place == PLACES:
        return -ENOMEM
    if woken != NULL:
        sem_post(&woken.wake)
    return place


cdef inline int take(Threads *threads, int place) noexcept nogil:
    """The number of the error of a flush that is done, and free its place; -1 if it is not done."""
    cdef int number = -1
    pthread_mutex_lock(&threads.mutex)
    if threads.flushes[place].state == DONE:
        number = threads.flushes[place].number
        threads.flushes[place].state = FREE
    pthread_mutex_unlock(&threads.mutex)
    return number


cdef inline void hear(Threads *threads) noexcept nogil:
    """Make the descriptor unready until the next flush ends."""
    cdef uint64_t count
    read(threads.done, &count, sizeof(count))


cdef inline void end(Threads *threads) noexcept nogil:
    """End the threads after the flushes that run; the last one frees what they share. Does not wait.

    Flushes that no thread has begun are dropped: their files are no longer kept open.
    """
    cdef int place, running
    pthread_mutex_lock(&threads.mutex)
    for place in range(PLACES):
        if threads.flushes[place].state == WANTED:
            threads.flushes[place].state = FREE
    threads.is_over = True
    running = threads.running
    while threads.rest_count > 0:  # with the mutex held: the last one frees it with the rest
        threads.rest_count -= 1
        sem_post(&threads.resting[threads.rest_count].wake)
    pthread_mutex_unlock(&threads.mutex)
    if running == 0:
        destroy(threads)


cdef inline int last_error() noexcept nogil:
    """The error of ``begin``."""
    return errno


cdef inline int done_descriptor(Threads *threads) noexcept nogil:
    """The descriptor that is ready when a flush has ended."""
    return threads.done


cdef inline Threads *none() noexcept nogil:
    return NULL


cdef inline char *at(size_t address) noexcept nogil:
    return <char *> address


cdef inline int begin_alarm() noexcept nogil:
    """A descriptor that is ready at the time given to ``set_alarm``; -1 with errno."""
    return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)


cdef inline void still_alarm(int descriptor) noexcept nogil:
    """Make the descriptor unready, and turn the alarm off."""
    cdef itimerspec never
    never.it_interval.tv_sec = never.it_value.tv_sec = 0
    never.it_interval.tv_nsec = never.it_value.tv_nsec = 0
    timerfd_settime(descriptor, 0, &never, NULL)


cdef inline bint set_alarm(int descriptor, double seconds) noexcept nogil:
    """Make the descriptor ready once, after ``seconds``: more than 0, less than 1. False: the system cannot.
    """
    cdef itimerspec when
    cdef long nanoseconds = <long> (seconds * 1e9)
    if nanoseconds < 1:
        nanoseconds = 1  # 0 would turn the timer off
    when.it_interval.tv_sec = 0
    when.it_interval.tv_nsec = 0
    when.it_value.tv_sec = 0
    when.it_value.tv_nsec = nanoseconds
    return timerfd_settime(descriptor, 0, &when, NULL) == 0


cdef inline void hear_alarm(int descriptor) noexcept nogil:
    """Make the descriptor unready."""
    cdef uint64_t count
    read(descriptor, &count, sizeof(count))


cdef inline void end_alarm(int descriptor) noexcept nogil:
    if descriptor >= 0:
        close(descriptor)
