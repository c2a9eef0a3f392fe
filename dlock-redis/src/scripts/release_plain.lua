-- RELEASE of the plain form: deletes the key if it is the claim's.
--
-- KEYS   1 the lock
-- ARGV   1 claim
-- RETURN 1: it was its own; 0: it was not
if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end
return 0
