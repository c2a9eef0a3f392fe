-- FLOOR: raises the tokens of a name above a given one, even while the lock is held.
--
-- KEYS   H F Q W R of the name
-- ARGV   1 token, 2 retention of F, ms
-- RETURN 1; an error if no token is left
local above,ret=ARGV[1]+0,ARGV[2]+0
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
local clock,frozen=us,false
--%lock
local s=open(1)
if s.past or math.max(s.t+1,above)>MOST then return redis.error_reply('DLOCK no token is left') end
-- The holder's release must not return a block, which would lower F.
if s.owner and s.mark=='+' then
  call('SET',s.H,s.owner..'!'..num(s.token)..s.final..s.note,'KEEPTTL')
end
-- More than F shows, so that F is written, and its lifetime begins again.
s.t=math.max(s.t+1,above,clock)
s.waiting=s.flag and call('EXISTS',s.Q)==1
close(s)
return 1
