// Counts in a file, each time under Curator's lock, in several threads.
// Arguments: where the server is, the path, the file, how many threads, and how often each.
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

class Main {
    public static void main(String[] args) throws Exception {
        var file = Path.of(args[2]);
        int threads = Integer.parseInt(args[3]);
        int times = Integer.parseInt(args[4]);
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], 60_000, 30_000, new RetryNTimes(10, 100))) {
            client.start();
            client.blockUntilConnected();
            System.out.println("ready");
            System.in.read();
            var mutex = new InterProcessMutex(client, args[1]);
            Callable<Void> count = () -> {
                for (int n = 0; n < times; n++) {
                    mutex.acquire();
                    try {
                        long value = Long.parseLong(Files.readString(file));
                        Thread.yield();
                        Files.writeString(file, Long.toString(value + 1));
                    } finally {
                        mutex.release();
                    }
                }
                return null;
            };
            var all = new ArrayList<Callable<Void>>();
            for (int n = 0; n < threads; n++) {
                all.add(count);
            }
            var pool = Executors.newFixedThreadPool(threads);
            for (var result : pool.invokeAll(all)) {
                result.get();
            }
            pool.shutdown();
        }
        System.out.println("counted");
    }
}
