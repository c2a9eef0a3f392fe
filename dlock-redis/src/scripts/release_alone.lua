-- RELEASE_ALONE: removes the claim of an exclusive holder behind which no claim waits.
--
-- Most releases are of this kind, and the server spends more time on the keys and arguments of
-- RELEASE than on its work.
--
-- KEYS   1 the holder of the name (see keys.rs)
-- ARGV   1 claim
-- RETURN 1: it was there and is removed; 2: claims wait behind it; 0: it does not hold the lock alone.
--        After 2 and 0 nothing was done, and RELEASE decides.
local record=redis.call('GET',KEYS[1])
if not record or string.sub(record,1,32)~=ARGV[1] then return 0 end
-- A record of an unknown format takes the long way, which does not delete it.
if string.byte(record,33)==58 and not string.find(record,'\1',1,true) then
  return redis.call('DEL',KEYS[1])
end
return 2
