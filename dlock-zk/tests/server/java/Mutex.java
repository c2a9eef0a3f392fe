// Takes Curator's lock at a path, and releases it, as each line that it reads says.
// Arguments: where the server is, the path, and how many milliseconds its session lasts.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

class Main {
    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        int session = Integer.parseInt(args[2]);
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], session, 30_000, new RetryOneTime(100))) {
            client.start();
            client.blockUntilConnected();
            System.out.println("ready");
            var mutex = new InterProcessMutex(client, args[1]);
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                if (line.equals("acquire")) {
                    mutex.acquire();
                    System.out.println("acquired");
                } else {
                    mutex.release();
                    System.out.println("released");
                }
            }
        }
        System.out.println("end");
    }
}
