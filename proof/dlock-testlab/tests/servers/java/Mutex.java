// Takes Curator's lock at a path, and releases it once it reads a line. It makes a container, too.
// Arguments: where the server is, and the path.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

class Main {
    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        try (CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100))) {
            client.start();
            client.createContainers("/never/used");
            var mutex = new InterProcessMutex(client, args[1]);
            mutex.acquire();
            System.out.println("acquired");
            input.readLine();
            mutex.release();
            System.out.println("released");
        }
        System.out.println("end");
    }
}
