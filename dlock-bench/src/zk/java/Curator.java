// Threads that take one lock of Curator and give it back at once, again and again.
// Arguments: where the server is, the path of the lock, and how many threads.
// Reads for how many milliseconds, and prints how many cycles there were and the nanoseconds that
// they took; until its input ends.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

class Main {
    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        int threads = Integer.parseInt(args[2]);
        var pool = Executors.newFixedThreadPool(threads);
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 3))) {
            client.start();
            // One for each thread: all that wait with one mutex are woken together.
            var mutexes = IntStream.range(0, threads)
                    .mapToObj(thread -> new InterProcessMutex(client, args[1]))
                    .toList();
            System.out.println("ready");
            for (String line; (line = input.readLine()) != null; ) {
                long lasts = Long.parseLong(line) * 1_000_000;
                long start = System.nanoTime();
                var work = mutexes.stream().map(mutex -> (Callable<Long>) () -> {
                    long cycles = 0;
                    while (System.nanoTime() - start < lasts) {
                        mutex.acquire();
                        mutex.release();
                        cycles++;
                    }
                    return cycles;
                }).toList();
                long cycles = 0;
                for (var done : pool.invokeAll(work)) {
                    cycles += done.get();
                }
                System.out.println(cycles + " " + (System.nanoTime() - start));
            }
        }
        pool.shutdown();
    }
}
