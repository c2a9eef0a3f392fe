-- ACQUIRE: takes a lock, or joins its queue.
--
-- The first part takes a lock exclusively that nobody holds or waits for. The rules in lock.lua decide
-- everything else. It needs none of their functions, which cost more than its commands.
--
-- KEYS   holder, tokens, queue, waiters and readers of the name (see keys.rs)
-- ARGV   1 claim, 32 hexadecimal digits
--        2 lease, ms
--        3 weight
--        4 capacity
--        5 how many tokens to reserve
--        6 1: leave the queue again if the lock is not free; 0: wait; 2 more: plain commands may
--          have written the holder's key for the claim, without a grant (see take.rs)
--        7 channel of the claim's client; empty: the client polls
--        8 proposed token of a quorum; 0: the server's clock
--        9 note, if there is one
--     last deadline, us of the server's clock: until then the client waits for the answer
-- RETURN {1, token, us of the server's clock} granted; {2, 1 for the first in the queue and more for
--        others, for the first the ms to the next lease that ends, us} queued; {3, us} busy;
--        {4, capacity} in use with another capacity; {5} no token is left (2^53);
--        {6, us} it came after its deadline, and nothing was done
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
if now>ARGV[#ARGV]+0 then return {6,now} end
local lends,frozen=ARGV[8]=='0',false
local clock=lends and now or ARGV[8]+0
local note=#ARGV>9 and ' '..ARGV[9] or ''
local tokens=ARGV[5]+0
if ARGV[3]=='1073741824' and redis.call('EXISTS',KEYS[1],KEYS[3],KEYS[5])==0 then
  local id='*'
  if not lends then
    local ms=math.floor(clock/1000)
    id=string.format('%.0f-%.0f',ms,clock-ms*1000)
  end
  -- The proposal of a quorum may be smaller than the last token.
  id=redis.pcall('XADD',KEYS[2],'MAXLEN','~',100,id,'c','')
  local ms,sequence=string.match(type(id)=='string' and id or '','^(%d+)%-(%d+)$')
  local token=ms and ms*1000+sequence
  -- See `token_of` and `grant` in lock.lua.
  -- A sum beyond 2^53 may be rounded down, so nothing is subtracted from one.
  local last=token and token+(tokens-1)
  if token and sequence+0<1000 and last<=9007199254740991
    and (tokens==1 or lends and math.floor(last/1000)<math.floor(now/1000)+ARGV[2]) then
    local record=string.format(tokens==1 and '%s:%.0f' or '%s+%.0f/%.0f',ARGV[1],token,tokens)
    redis.call('SET',KEYS[1],record..note,'PX',ARGV[2])
    return {1,token,now}
  end
end
--%lock
return acquire(load(1),ARGV[1],ARGV[2]+0,ARGV[3]+0,ARGV[4]+0,ARGV[5]+0,ARGV[6]+0,ARGV[7],note)
