-- RAISE_TOKENS: raises the tokens of a name above a given one, even while the lock is held.
--
-- KEYS   holder, last token, queue, waiters and readers of the name (see keys.rs)
-- ARGV   1 token, 2 retention of the last token, ms
-- RETURN 1; an error if no token is left
local above,retention=ARGV[1]+0,ARGV[2]+0
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local clock,frozen=now,false
--%lock
local s=load(1)
if s.inexact or math.max(s.last_token+1,above)>LARGEST_TOKEN then
  return redis.error_reply('DLOCK no token is left')
end
-- The holder's release must not return a block, which would lower the last token.
if s.holder and s.mark=='+' then
  call('SET',s.holder_key,s.holder..'!'..num(s.holder_token)..s.final..s.note,'KEEPTTL')
end
-- More than the last token, so that it is written, and its lifetime begins again.
s.last_token=math.max(s.last_token+1,above,clock)
s.has_waiters=s.flagged and call('EXISTS',s.queue_key)==1
save(s)
return 1
