-- QUORUM_TOKEN: writes a quorum's token back, if the claim still holds the lock on this master.
--
-- KEYS   holder, last token, queue, waiters and readers of the name (see keys.rs)
-- ARGV   1 claim, 2 token, 3 how many tokens, 4 retention of the last token, ms
-- RETURN 1: it holds the lock, and no later grant gets a smaller token; 0: it does not hold it; an
--        error for a token that is not exact
local claim,token,tokens,retention=ARGV[1],ARGV[2]+0,ARGV[3]+0,ARGV[4]+0
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local clock,frozen=now,false
--%lock
if token+(tokens-1)>LARGEST_TOKEN then return redis.error_reply('DLOCK no token is left') end
local s=load(1)
if s.holder==claim then
  -- Never lower: a late request may state a smaller token than the one that was agreed on
  -- meanwhile.
  if token>s.holder_token then
    local record=claim..s.mark..num(token)..s.final..s.note
    call('SET',s.holder_key,record,'PX',call('PTTL',s.holder_key))
  end
elseif s.used>0 and call('ZSCORE',s.readers_key,claim) then
  local weight,capacity,own_tokens,lease,own_token,final,note=
    string.match(call('HGET',s.waiters_key,claim) or '',WAITER_RECORD)
  if not own_token or newer(note) then foreign(s.waiters_key,note) end
  -- Another reader was granted the lock here since, and may have this very token.
  if token>own_token+0 and s.last_token>own_token+own_tokens-1 then return 0 end
  if token>own_token+0 then
    local head=weight..':'..capacity..':'..num(tokens)..':'..lease..':'
    call('HSET',s.waiters_key,claim,head..num(token)..':'..final..note)
  end
else
  return 0
end
local last=token+tokens-1
if last>s.last_token then s.last_token=last end
s.has_waiters=s.flagged and call('EXISTS',s.queue_key)==1
save(s)
return 1
