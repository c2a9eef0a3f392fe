-- RENEW of exclusive holders: restarts their leases. All keys are of one slot.
--
-- KEYS   H of each name, and then F of each name, unless the retention is 0
-- ARGV   for each name: claim, lease (ms); then the retention of F (ms)
-- RETURN us of the server's clock, and the indices, from 1, of claims that are no exclusive holders
local T=redis.call('TIME')
local gone={T[1]*1000000+T[2]}
local ret=ARGV[#ARGV]+0
local n=(#ARGV-1)/2
for i=1,n do
  -- A foreign key of one name does not affect the others.
  local o=redis.pcall('GET',KEYS[i])
  if type(o)=='table' and not string.find(o.err,'WRONGTYPE',1,true) then return o end
  if type(o)=='string' and string.sub(o,1,32)==ARGV[2*i-1] then
    redis.call('PEXPIRE',KEYS[i],ARGV[2*i])
    -- F outlives every holder. So if a claim and its F are missing, the server has lost its data.
    -- An F without a lifetime is not dlock's.
    if ret>0 then
      local F,need=KEYS[n+i],ret+ARGV[2*i]
      local left=redis.call('PTTL',F)
      if left==-2 then
        -- The server may refuse this write if it has no memory. That is no loss of the lock.
        redis.pcall('SET',F,string.match(o..' ','(%d+) ') or '0','NX','PX',need+ARGV[2*i])
      elseif left>=0 and left<need then
        redis.call('PEXPIRE',F,need+ARGV[2*i])
      end
    end
  else
    gone[#gone+1]=i
  end
end
return gone
