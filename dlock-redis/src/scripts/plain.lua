-- PLAIN: takes a lock of the plain form.
--
-- KEYS   1 the key
-- ARGV   1 claim, 2 lease (ms)
--        3 deadline, us of the server's clock: until then the client waits for the answer
-- RETURN us of the server's clock: the claim holds the lock, and its lease is extended if an
--        earlier sending took it; 0: it does not hold it; {6, us}: it came after its deadline, and
--        nothing was done
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
if us>ARGV[3]+0 then return {6,us} end
if redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then return us end
if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end
redis.call('PEXPIRE',KEYS[1],ARGV[2],'GT')
return us
