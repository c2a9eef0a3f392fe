-- ACQUIRE_PLAIN: takes a lock of the plain form.
--
-- KEYS   1 the key
-- ARGV   1 claim, 2 lease (ms)
--        3 deadline, us of the server's clock: until then the client waits for the answer
-- RETURN us of the server's clock: the claim holds the lock, and its lease is extended if an
--        earlier sending took it; 0: it does not hold it; {6, us}: it came after its deadline, and
--        nothing was done
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
if now>ARGV[3]+0 then return {6,now} end
if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then return now end
if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end
redis.call('PEXPIRE',KEYS[1],ARGV[2],'GT')
return now
