"""redis-py's Lock: SET NX PX, asked again every 100 ms, as it does unless it is told otherwise."""

import sys

import redis

from subject import serve

client = redis.Redis.from_url(sys.argv[1])
serve(lambda name: client.lock(name, timeout=30))
