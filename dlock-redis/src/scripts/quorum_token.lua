-- QUORUM_TOKEN: writes a quorum's token back, if the claim still holds the lock on this master.
--
-- KEYS   holder, tokens, queue, waiters and readers of the name (see keys.rs)
-- ARGV   1 claim, 2 token, 3 how many tokens
-- RETURN 1: it holds the lock, and no later grant gets a smaller token; 0: it does not hold it; an
--        error for a token that is not exact
local claim,token,tokens=ARGV[1],ARGV[2]+0,ARGV[3]+0
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local clock,lends,frozen=now,false,false
--%lock
if token+(tokens-1)>LARGEST_TOKEN then return redis.error_reply('DLOCK no token is left') end
local s=load(1)
if s.holder==claim then
  -- Never lower: a late request may state a smaller token than the one that was agreed on
  -- meanwhile.
  if s.holder_token and token>s.holder_token then
    s.holder_token=token
    write_holder(s,'KEEPTTL')
  end
elseif s.used>0 and call('ZSCORE',s.readers_key,claim) then
  local weight,capacity,own_tokens,lease,own_token,final,note=
    string.match(call('HGET',s.waiters_key,claim) or '',WAITER_RECORD)
  if not own_token or newer(note) then foreign(s.waiters_key,note) end
  -- Another claim was granted a token here since, perhaps this very one.
  if token>own_token+0 and stream(s).last>=token and s.stream.last>own_token+own_tokens-1 then
    return 0
  end
  if token>own_token+0 then
    local head=weight..':'..capacity..':'..num(tokens)..':'..lease..':'
    call('HSET',s.waiters_key,claim,head..num(token)..':'..final..note)
  end
else
  return 0
end
local last=token+tokens-1
if last>stream(s).last then s.stream.last,s.stream.changed=last,true end
save(s)
return 1
