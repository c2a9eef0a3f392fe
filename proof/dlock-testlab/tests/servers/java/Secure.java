// Lists the children of the root over TLS.
// Arguments: for how many seconds it tries to connect, where the server is, the authority, and
// perhaps a certificate and its key.
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;

class Main {
    public static void main(String[] args) throws Exception {
        System.setProperty("zookeeper.client.secure", "true");
        System.setProperty(
                "zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty");
        System.setProperty("zookeeper.ssl.trustStore.location", args[2]);
        System.setProperty("zookeeper.ssl.trustStore.type", "PEM");
        if (args.length > 3) {
            String both = Files.readString(Path.of(args[4])) + Files.readString(Path.of(args[3]));
            Files.writeString(Path.of("client.pem"), both);
            System.setProperty("zookeeper.ssl.keyStore.location", "client.pem");
            System.setProperty("zookeeper.ssl.keyStore.type", "PEM");
        }
        var connected = new CountDownLatch(1);
        var client = new ZooKeeper(args[1], 10_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        if (!connected.await(Long.parseLong(args[0]), TimeUnit.SECONDS)) {
            System.out.println("refused");
            System.exit(0);
        }
        var children = client.getChildren("/", false);
        children.sort(null);
        System.out.println(children);
        client.close();
    }
}
