-- RELEASE: removes a claim, held or waiting, and grants the lock to the next in the queue.
--
-- The grant is written before its message is published, in one atomic script. So a lost message
-- leaves a grant, which the next poll finds.
--
-- KEYS   holder, tokens, queue, waiters and readers of the name (see keys.rs)
-- ARGV   1 claim
--        2 how many tokens of its block were used; 0 if that is not known
--     last 1, only during the restart guard: nothing is granted
-- RETURN 1: it was there; 0: it was not
local claim=ARGV[1]
local holder_record=redis.call('GET',KEYS[1])
-- A record of an unknown format takes the long way, which does not delete it.
if holder_record and string.find(holder_record,'^'..claim..':%d')
  and not string.find(holder_record,'\1',1,true) then
  redis.call('DEL',KEYS[1])
  return 1
end
local frozen=ARGV[3]~=nil
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local clock,lends=now,true
--%lock
local s=load(1,holder_record)
local found=false
if s.holder==claim then
  if s.mark=='+' and ARGV[2]~='0' then
    use_until(s,s.holder_token+ARGV[2]-1)
  else
    end_block(s)
  end
  -- A claim whose late `SET` holds the key waits as well: see take.rs.
  if not s.holder_token then remove_waiting(s,claim) end
  s.holder,s.releasing=nil,true
  found=true
  promote(s)
  leave(s)
else
  if s.used>0 and call('ZSCORE',s.readers_key,claim) then
    local record=call('HGET',s.waiters_key,claim) or ''
    local w,note=string.match(record,'^(%d+):[^ ]*(.*)$')
    if not w or newer(note) then foreign(s.waiters_key,record) end
    call('ZREM',s.readers_key,claim)
    call('HDEL',s.waiters_key,claim)
    s.used,s.recount=s.used-w,true
    found=true
  else
    found=remove_waiting(s,claim)
  end
  promote(s)
end
save(s)
return found and 1 or 0
