-- ACQUIRE: takes a lock, or joins its queue.
--
-- The first part takes a lock exclusively that is free, with no waiters and no shared holders. The
-- rules in lock.lua decide everything else.
--
-- KEYS   holder, last token, queue, waiters and readers of the name (see keys.rs)
-- ARGV   1 claim, 32 hexadecimal digits
--        2 lease, ms
--        3 weight
--        4 capacity
--        5 how many tokens to reserve
--        6 1: leave the queue again if the lock is not free; 0: wait
--        7 channel of the claim's client; empty: the client polls
--        8 retention of the last token, ms
--        9 proposed token of a quorum; 0: the server's clock
--       10 note, if there is one
--     last deadline, us of the server's clock: until then the client waits for the answer
-- RETURN an integer: granted with this token, which the server's clock shows;
--        {1, token, us of the server's clock} granted; {2, 1 for the first in the queue and more for
--        others, for the first the ms to the next lease that ends, us} queued; {3, us} busy;
--        {4, capacity} in use with another capacity; {5} no token is left (2^53);
--        {6, us} it came after its deadline, and nothing was done
local claim,tokens,retention=ARGV[1],ARGV[5]+0,ARGV[8]+0
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
if now>ARGV[#ARGV]+0 then return {6,now} end
local frozen=false
local note=#ARGV>10 and ' '..ARGV[10] or ''
local clock=ARGV[9]=='0' and now or ARGV[9]+0
local largest_token=9007199254740991
if ARGV[3]=='1073741824' then
  local holder,last_token=KEYS[1],KEYS[2]
  local mark=tokens==1 and ':' or '+'
  if redis.call('SET',holder,claim..mark..string.format('%.0f',clock)..note,'NX','PX',ARGV[2]) then
    local token_record=redis.pcall('GET',last_token)
    if type(token_record)=='table' then redis.call('DEL',holder) return token_record end
    local n=token_record and string.find(token_record,'^%d+$') and token_record+0
    if (not token_record or n and n<clock) and clock+(tokens-1)<=largest_token then
      redis.call('SET',last_token,string.format('%.0f',clock+tokens-1),'PX',retention)
      if ARGV[9]~='0' then return {1,clock,now} end
      return clock
    end
    if n and n>=clock and n+tokens<=largest_token then
      -- The last token is ahead of the clock: its next number.
      redis.call('SET',holder,claim..mark..string.format('%.0f',n+1)..note,'PX',ARGV[2])
      redis.call('SET',last_token,string.format('%.0f',n+tokens),'PX',retention)
      return {1,n+1,now}
    end
    -- The full rules decide if there may be waiters or shared holders, if the last token is not
    -- dlock's, or if few tokens are left.
    redis.call('DEL',holder)
  end
end
--%lock
return acquire(load(1),claim,ARGV[2]+0,ARGV[3]+0,ARGV[4]+0,tokens,ARGV[6]=='1',ARGV[7],note)
