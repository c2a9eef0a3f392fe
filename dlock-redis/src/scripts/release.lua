-- RELEASE: removes a claim, held or waiting, and grants the lock to the next in the queue.
--
-- The grant is written before its message is published, in one atomic script. So a lost message
-- leaves a grant, which the next poll finds.
--
-- KEYS   H F Q W R of the name
-- ARGV   1 claim
--        2 how many tokens of its block were used; 0 if that is not known
--        3 retention of F, ms
--     last 1, only during the restart guard: nothing is granted
-- RETURN 1: it was there; 0: it was not
local id=ARGV[1]
local o=redis.call('GET',KEYS[1])
-- A record of an unknown format takes the long way, which does not delete it.
if o and ARGV[2]~='0' and string.find(o,'^'..id..':%d') and not string.find(o,'\1',1,true) then
  redis.call('DEL',KEYS[1])
  return 1
end
local ret=ARGV[3]+0
local frozen=ARGV[4]~=nil
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
local clock=us
--%lock
local s=open(1,o)
local there=false
if s.owner==id then
  -- While it held the lock alone, all tokens from its first token on were its own. The tokens of
  -- its block that no client has seen can be used again.
  local last=s.token+ARGV[2]-1
  if s.mark=='+' and ARGV[2]~='0' and s.t>last then s.t=last end
  s.owner,s.leaves=nil,true
  there=true
  promote(s)
  if not s.owner and s.leaves then call('DEL',s.H) end
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
