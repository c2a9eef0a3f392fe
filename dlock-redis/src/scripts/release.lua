-- RELEASE: gives a claim up, held or waiting, and makes the next in line the holder.
--
-- KEYS   H F Q W R of the name
-- ARGV   1 claim
--        2 how many tokens of its block were handed out; 0 when it is not known
--        3 retention of F, ms
-- RETURN 1: it was there; 0: it was not
local id=ARGV[1]
local o=redis.call('GET',KEYS[1])
local format=o and string.match(o,'\1(%d+)') or 1
-- One of a format that is not read goes the long way, and is not deleted there.
if o and ARGV[2]~='0' and string.find(o,'^'..id..'[:?]') and format+0<=2 then
  redis.call('DEL',KEYS[1])
  return 1
end
local ret=ARGV[3]+0
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
local clock=us
--%lock
local s=open(1,o)
local there=false
if s.owner==id then
  -- While it held the lock alone, all tokens from its first on were its own: those of its block
  -- that nobody saw can be given out again. The tokens that a client of a former version has in
  -- reserve behind a single one can not, or F would show the end of that reserve once more when
  -- others have held the lock.
  local last=s.token+ARGV[2]-1
  if s.mark=='+' and ARGV[2]~='0' and s.t>last then s.t=last end
  s.owner=nil
  there=true
  promote(s)
  if not s.owner then call('DEL',s.H) end
else
  if s.used>0 and call('ZSCORE',s.R,id) then
    local held=call('HGET',s.W,id) or ''
    local w,note=string.match(held,'^(%d+):[^ ]*(.*)$')
    if not w or newer(note) then foreign(s.W,held) end
    call('ZREM',s.R,id)
    call('HDEL',s.W,id)
    s.used,s.dirty=s.used-w,true
    there=true
  else
    there=leave(s,id)
  end
  promote(s)
end
close(s)
return there and 1 or 0
