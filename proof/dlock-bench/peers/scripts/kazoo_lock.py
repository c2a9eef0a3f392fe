"""kazoo's Lock."""

import sys

from kazoo.client import KazooClient

from subject import serve

client = KazooClient(hosts=sys.argv[1].removeprefix("zk://"))
client.start()
# Its own Lock of a name that others wait for, too, has to be another object in each thread.
serve(lambda name: client.Lock(f"/kazoo/{name}"))
