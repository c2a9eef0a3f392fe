-- RELEASE_PLAIN: deletes a key that still contains the caller's value: the release of the plain form.
--
-- KEYS   1 the key
-- ARGV   1 the value
-- RETURN 1: the key had this value and is deleted; 0: it has another value or none
if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end
return 0
