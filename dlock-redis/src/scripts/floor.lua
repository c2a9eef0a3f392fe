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
-- A client of a former version that took H by SET holds the lock if no claim was granted since its
-- tokens were reserved (F then still shows the last of them), and if no claim shares the lock.
-- Afterwards F does not show this any more, so the script checks it now.
if s.owner and s.last~='' and (s.last+0~=s.t or s.used>0 or s.flag and s.mark=='?') then
  call('DEL',s.H)
  s.owner,s.mark=nil,nil
end
-- Its release must not return a block either, which would lower F.
local mark=s.mark
if s.owner and s.last~='' then
  mark=mark=='?' and ':' or mark=='&' and '!' or mark
elseif mark=='+' then
  mark='!'
end
if s.owner and (s.last~='' or mark~=s.mark) then
  call('SET',s.H,s.owner..mark..num(s.token)..s.final..s.note,'KEEPTTL')
end
-- Above the value that F showed, too: a former client whose reserve ends there must find another
-- number.
local last=math.max(s.t+1,above,clock)
s.t=last
s.waiting=s.flag and call('EXISTS',s.Q)==1
close(s)
return 1
