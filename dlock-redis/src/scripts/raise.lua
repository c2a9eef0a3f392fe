-- RAISE: writes a quorum's token back, if the claim still holds the lock on this master.
--
-- KEYS   H F Q W R of the name
-- ARGV   1 claim, 2 token, 3 how many tokens, 4 retention of F, ms
-- RETURN 1: it holds the lock, and no later grant gets a smaller token; 0: it does not hold it; an
--        error for a token that is not exact
local id,token,block,ret=ARGV[1],ARGV[2]+0,ARGV[3]+0,ARGV[4]+0
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
local clock,frozen=us,false
--%lock
if token+(block-1)>MOST then return redis.error_reply('DLOCK no token is left') end
local s=open(1)
if s.owner==id then
  -- Never lower: a late request may state a smaller token than the one that was agreed on
  -- meanwhile.
  if token>s.token then
    call('SET',s.H,id..s.mark..num(token)..s.final..s.note,'PX',call('PTTL',s.H))
  end
elseif s.used>0 and call('ZSCORE',s.R,id) then
  local weight,cap,had,lease,own,final,note=string.match(call('HGET',s.W,id) or '',WAITS)
  if not own or newer(note) then foreign(s.W,note) end
  -- Another reader was granted the lock here since, and may have this very token.
  if token>own+0 and s.t>own+had-1 then return 0 end
  if token>own+0 then
    call('HSET',s.W,id,weight..':'..cap..':'..num(block)..':'..lease..':'..num(token)..':'..final..note)
  end
else
  return 0
end
local last=token+block-1
if last>s.t then s.t=last end
s.waiting=s.flag and call('EXISTS',s.Q)==1
close(s)
return 1
