"""The lines of `dlock-bench compare`, which src/subject/serve.rs describes, for locks in Python.

A task is a thread. A lock is an object with acquire() and release(), made for each thread.
"""

import sys
import threading
import time


def now():
    """Nanoseconds on the clock that all processes of the machine share."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def sleep_until(when):
    time.sleep(max(0, when - now()) / 1e9)


def serve(lock):
    """Serves the parent until it closes the pipe; `lock` makes a lock of a name."""
    work = None
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "go":
                answer = "ok " + work(int(words[1]), int(words[2]))
            else:
                work = prepare(lock, words)
                answer = "ok "
        except Exception as failure:  # whatever it is, the parent prints it
            answer = "error " + (str(failure) or repr(failure)).replace("\n", " ")
        print(answer, flush=True)


def prepare(lock, words):
    """What is to be done, as a function of two times."""
    what, name = words[0], words[1]
    if what == "uncontended":
        one = lock(name)
        return lambda start, until: percentiles(uncontended(one, start, until))
    if what not in ("spread", "local", "contend"):
        raise NotImplementedError("it has no such lock")
    tasks = range(int(words[2]))
    hold = int(words[3]) / 1e6 if what == "contend" else 0
    locks = [lock(f"{name}/{task}" if what == "spread" else name) for task in tasks]

    def holds(start, until):
        parts = in_threads([lambda one=one: cycles(one, start, until, hold) for one in locks])
        if what == "contend":
            enumerated = enumerate(parts)
            return " ".join(f"{i}:{got}:{got}:{left}" for i, p in enumerated for got, left, _ in p)
        return " ".join(str(sum(done < until for _, _, done in part)) for part in parts)

    return holds


def percentiles(took):
    middle, high = took[len(took) // 2], took[min(len(took) * 99 // 100, len(took) - 1)]
    return f"{middle} {high} {len(took)}"


def uncontended(lock, start, until):
    """How long each cycle took, sorted."""
    sleep_until(start)
    took, began = [], now()
    while not took or began < until:
        lock.acquire()
        lock.release()
        ended = now()
        took.append(ended - began)
        began = ended
    return sorted(took)


def cycles(lock, start, until, hold):
    """When it was got, left, and had been given back, each time; once at least."""
    sleep_until(start)
    holds = []
    while not holds or now() < until:
        lock.acquire()
        got = left = now()
        if hold:
            time.sleep(hold)
            left = now()
        lock.release()
        holds.append((got, left, now()))
    return holds


def in_threads(works):
    results, failures = [None] * len(works), []

    def run(place, work):
        try:
            results[place] = work()
        except Exception as failure:  # told by the first thread
            failures.append(failure)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
