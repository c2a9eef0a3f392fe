-- RAISE: writes a quorum's token back where the claim still holds the lock.
--
-- KEYS   H F Q W R of the name
-- ARGV   1 claim, 2 token, 3 how many tokens, 4 retention of F, ms
-- RETURN 1: it holds the lock and no smaller token will be given out; 0: it does not hold it
local id,token,block,ret=ARGV[1],ARGV[2]+0,ARGV[3]+0,ARGV[4]+0
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
local clock=us
--%lock
local s=open(1)
if s.owner==id then
  local left=call('PTTL',s.H)
  call('SET',s.H,id..'!'..num(token),'PX',left)
elseif s.used>0 and call('ZSCORE',s.R,id) then
  local w=call('HGET',s.W,id)
  local weight,cap,_,lease=string.match(w,WAITS)
  call('HSET',s.W,id,weight..':'..cap..':'..num(block)..':'..lease..':'..num(token)..':')
else
  return 0
end
local last=token+block-1
if last>s.t then s.t=last end
s.waiting=s.flag and call('EXISTS',s.Q)==1
close(s)
return 1
