// Curator's recipes as a subject of `dlock-bench compare`: it reads the lines that are described
// in src/subject/serve.rs and answers each.
// Arguments: where the server is, and the nanoseconds by which this clock is behind the parent's.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.BiFunction;
import java.util.function.IntFunction;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.ExponentialBackoffRetry;

class Main {
    static CuratorFramework client;
    static long behind;
    static ExecutorService pool;

    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        behind = Long.parseLong(args[1]);
        pool = Executors.newCachedThreadPool();
        client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 3));
        client.start();
        for (String line; (line = input.readLine()) != null; ) {
            String answer;
            try {
                answer = "ok " + obey(line.split(" "));
            } catch (Exception failure) {
                answer = "error " + failure.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
        System.exit(0);
    }

    /** Does something from one time until another. */
    interface Work {
        String go(long from, long until) throws Exception;
    }

    static Work next;

    static String obey(String[] words) throws Exception {
        if (words[0].equals("go")) {
            return next.go(Long.parseLong(words[1]), Long.parseLong(words[2]));
        }
        next = prepare(words);
        return "";
    }

    static Work prepare(String[] words) {
        switch (words[0]) {
            case "uncontended": {
                var lock = mutex(words[1]);
                return (from, until) -> uncontended(lock, from, until);
            }
            case "multi": {
                var all = mutexes(words[1], i -> words[2] + "/" + i);
                var lock = new InterProcessMultiLock(new ArrayList<InterProcessLock>(all));
                return (from, until) -> uncontended(lock, from, until);
            }
            case "spread": {
                var all = mutexes(words[2], i -> words[1] + "/" + i);
                return (from, until) -> joined(all, (i, lock) -> cycles(lock, from, until));
            }
            case "local": {
                // A mutex for each thread: all that wait with one are woken together.
                var all = mutexes(words[2], i -> words[1]);
                return (from, until) -> joined(all, (i, lock) -> cycles(lock, from, until));
            }
            case "rw": {
                int reads = Integer.parseInt(words[3]);
                var all = IntStream.range(0, Integer.parseInt(words[2]))
                        .mapToObj(i -> new InterProcessReadWriteLock(client, path(words[1])))
                        .collect(Collectors.toList());
                return (from, until) ->
                        joined(all, (i, lock) -> mostly(lock, reads, i, from, until));
            }
            case "contend": {
                var all = mutexes(words[2], i -> words[1]);
                long hold = Long.parseLong(words[3]) / 1000;
                return (from, until) -> joined(all, (i, lock) -> holds(i, lock, hold, from, until));
            }
            default:
                throw new IllegalArgumentException("it does not know: " + String.join(" ", words));
        }
    }

    static String uncontended(InterProcessLock lock, long from, long until) throws Exception {
        return pool.submit(() -> {
            sleepUntil(from);
            var took = new ArrayList<Long>();
            long start = now();
            while (start < until || took.isEmpty()) {
                lock.acquire();
                lock.release();
                long end = now();
                took.add(end - start);
                start = end;
            }
            took.sort(null);
            int size = took.size();
            return took.get(size / 2) + " " + took.get(Math.min(size * 99 / 100, size - 1)) + " " + size;
        }).get();
    }

    static Callable<String> cycles(InterProcessLock lock, long from, long until) {
        return () -> {
            sleepUntil(from);
            long cycles = 0;
            while (now() < until) {
                lock.acquire();
                lock.release();
                cycles += now() < until ? 1 : 0;
            }
            return cycles + " ";
        };
    }

    static Callable<String> mostly(
            InterProcessReadWriteLock lock, int reads, int begins, long from, long until) {
        return () -> {
            sleepUntil(from);
            long cycles = 0;
            int turn = begins;
            while (now() < until) {
                turn = (turn + 37) % 100;
                InterProcessLock side = turn < reads ? lock.readLock() : lock.writeLock();
                side.acquire();
                side.release();
                cycles += now() < until ? 1 : 0;
            }
            return cycles + " ";
        };
    }

    static Callable<String> holds(
            int task, InterProcessLock lock, long hold, long from, long until) {
        return () -> {
            sleepUntil(from);
            var all = new StringBuilder();
            while (now() < until) {
                lock.acquire();
                long got = now();
                long left = got;
                if (hold > 0) {
                    Thread.sleep(hold);
                    left = now();
                }
                lock.release();
                all.append(task + ":" + got + ":" + got + ":" + left + " ");
            }
            return all.toString();
        };
    }

    /** A thread for each lock. */
    static <L> String joined(List<L> locks, BiFunction<Integer, L, Callable<String>> work)
            throws Exception {
        var all = IntStream.range(0, locks.size())
                .mapToObj(i -> work.apply(i, locks.get(i)))
                .collect(Collectors.toList());
        var answers = new StringBuilder();
        for (var done : pool.invokeAll(all)) {
            answers.append(done.get());
        }
        return answers.toString();
    }

    static List<InterProcessMutex> mutexes(String count, IntFunction<String> name) {
        return IntStream.range(0, Integer.parseInt(count))
                .mapToObj(i -> mutex(name.apply(i)))
                .collect(Collectors.toList());
    }

    static InterProcessMutex mutex(String name) {
        return new InterProcessMutex(client, path(name));
    }

    static String path(String name) {
        return "/curator/" + name;
    }

    static long now() {
        return System.nanoTime() + behind;
    }

    static void sleepUntil(long time) throws InterruptedException {
        long wait = time - now();
        if (wait > 0) {
            Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
        }
    }
}
