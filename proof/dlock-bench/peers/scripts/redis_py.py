"""redis-py's Lock: SET NX PX, asked again every 100 ms, as it does unless it is told otherwise."""

import sys

import redis

from subject import serve

# As many connections as redis-py permits by default. A thread that finds all of them in use waits for
# one instead of failing.
CONNECTIONS = 100

pool = redis.BlockingConnectionPool.from_url(sys.argv[1], max_connections=CONNECTIONS, timeout=60)
client = redis.Redis(connection_pool=pool)
serve(lambda name: client.lock(name, timeout=30))
