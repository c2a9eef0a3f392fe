-- ACQUIRE, first part: an exclusive claim on a lock that is free, with no waiters and no shared
-- holders.
--
-- KEYS   H F Q W R of the name (see keys.rs)
-- ARGV   1 claim, 32 hexadecimal digits
--        2 lease, ms
--        3 weight
--        4 capacity
--        5 how many tokens to reserve
--        6 1: leave the queue again if the lock is not free; 0: wait
--        7 channel of the claim's client; empty: the client polls
--        8 retention of F, ms
--        9 proposed token of a quorum; 0: the server's clock
--       10 note, if there is one
--     last deadline, us of the server's clock: until then the client waits for the answer
-- RETURN an integer: granted with this token, which the server's clock shows;
--        {1, token, us of the server's clock} granted; {2, 1 for the first in the queue and more for
--        others, for the first the ms to the next lease that ends, us} queued; {3, us} busy;
--        {4, capacity} in use with another capacity; {5} no token is left (2^53);
--        {6, us} it came after its deadline, and nothing was done
local id,block,ret=ARGV[1],ARGV[5]+0,ARGV[8]+0
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
if us>ARGV[#ARGV]+0 then return {6,us} end
local frozen=false
local note=#ARGV>10 and ' '..ARGV[10] or ''
local clock=ARGV[9]=='0' and us or ARGV[9]+0
local most=9007199254740991
if ARGV[3]=='1073741824' then
  local H,F=KEYS[1],KEYS[2]
  local mark=block==1 and ':' or '+'
  if redis.call('SET',H,id..mark..string.format('%.0f',clock)..note,'NX','PX',ARGV[2]) then
    local f=redis.pcall('GET',F)
    if type(f)=='table' then redis.call('DEL',H) return f end
    local n=f and string.find(f,'^%d+$') and f+0
    if (not f or n and n<clock) and clock+(block-1)<=most then
      redis.call('SET',F,string.format('%.0f',clock+block-1),'PX',ret)
      if ARGV[9]~='0' then return {1,clock,us} end
      return clock
    end
    if n and n>=clock and n+block<=most then
      -- F is ahead of the clock: its next number.
      redis.call('SET',H,id..mark..string.format('%.0f',n+1)..note,'PX',ARGV[2])
      redis.call('SET',F,string.format('%.0f',n+block),'PX',ret)
      return {1,n+1,us}
    end
    -- The full rules decide if there may be waiters or shared holders, if F is not dlock's, or if
    -- few tokens are left.
    redis.call('DEL',H)
  end
end
