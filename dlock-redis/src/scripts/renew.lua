-- RENEW of exclusive holders: extends their leases. All keys are of one slot.
--
-- An earlier renewal may arrive later, over another connection. So the last renewal of a claim, which
-- may shorten the lease, marks H (see keys.rs): after that, nothing extends the lease. The value of
-- the plain form has no room for a mark.
--
-- KEYS   H of each name, and then F of each name, unless the retention is 0
-- ARGV   for each name: claim, lease (ms, negative for the last renewal); then the retention of F (ms)
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
    local lease=ARGV[2*i]+0
    local last=lease<0
    if last then lease=-lease end
    local head,final,note=string.match(o,'^(%x+[:!+]%d+)(%*?)(.*)$')
    if final=='*' then
      if last then redis.call('PEXPIRE',KEYS[i],lease,'LT') end
    elseif last then
      redis.call('PEXPIRE',KEYS[i],lease)
    else
      redis.call('PEXPIRE',KEYS[i],lease,'GT')
    end
    -- After the first write the server refuses none for want of memory.
    if last and final=='' then redis.call('SET',KEYS[i],head..'*'..note,'KEEPTTL') end
    -- F outlives every holder. So if a claim and its F are missing, the server has lost its data.
    -- An F without a lifetime is not dlock's.
    if ret>0 then
      local F,need=KEYS[n+i],ret+lease
      local left=redis.call('PTTL',F)
      if left==-2 then
        -- The server may refuse this write if it has no memory. That is no loss of the lock.
        redis.pcall('SET',F,string.match(o..' ','(%d+) ') or '0','NX','PX',need+lease)
      elseif left>=0 and left<need then
        redis.call('PEXPIRE',F,need+lease)
      end
    end
  else
    gone[#gone+1]=i
  end
end
return gone
