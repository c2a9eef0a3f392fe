// Adds a node to the log of a server that does not run, as if a node had been created in its
// directory some two thousand million times before.
// Arguments: where the log is, the node's path, and the number of the creation.
import java.io.File;
import java.util.Arrays;
import org.apache.jute.Record;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.server.Request;
import org.apache.zookeeper.server.persistence.FileTxnLog;
import org.apache.zookeeper.txn.CreateTxn;
import org.apache.zookeeper.txn.TxnHeader;

class Main {
    public static void main(String[] args) throws Exception {
        FileTxnLog.setPreallocSize(64 * 1024);
        try (var log = new FileTxnLog(new File(args[0]))) {
            long zxid = log.getLastLoggedZxid() + 1;
            long now = System.currentTimeMillis();
            var node = new CreateTxn(
                    args[1], new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, false, Integer.parseInt(args[2]));
            append(log, new TxnHeader(0, 0, zxid, now, ZooDefs.OpCode.create), node);
            log.commit();
        }
        System.out.println("appended");
    }

    // ZooKeeper 3.9 takes a request, and older ones take its parts.
    private static void append(FileTxnLog log, TxnHeader header, Record change) throws Exception {
        var whole = Arrays.stream(FileTxnLog.class.getMethods())
                .filter(one -> one.getName().equals("append") && one.getParameterCount() == 1)
                .findAny();
        if (whole.isPresent()) {
            var request = new Request(0, 0, header.getType(), header, change, header.getZxid());
            whole.get().invoke(log, request);
        } else {
            FileTxnLog.class.getMethod("append", TxnHeader.class, Record.class).invoke(log, header, change);
        }
    }
}
