-- RENEW_EXCLUSIVE: extends the leases of exclusive holders. All keys are of one slot.
--
-- An earlier renewal may arrive later, over another connection. So the last renewal of a claim, which
-- may shorten the lease, marks the holder's record (see keys.rs): after that, nothing extends the
-- lease. The value of the plain form has no room for a mark.
--
-- KEYS   the holder of each name, and then the last token of each, unless the retention is 0
-- ARGV   for each name: claim, lease (ms, negative for the last renewal), token of the grant, or 0 if
--        it is not known
--     last retention of the last token, ms
-- RETURN us of the server's clock, and the indices, from 1, of claims that are no exclusive holders,
--        or hold their locks by another grant
local time=redis.call('TIME')
local answer={time[1]*1000000+time[2]}
local retention=ARGV[#ARGV]+0
local n=(#ARGV-1)/3
for i=1,n do
  -- A foreign key of one name does not affect the others.
  local holder_record=redis.pcall('GET',KEYS[i])
  if type(holder_record)=='table' and not string.find(holder_record.err,'WRONGTYPE',1,true) then
    return holder_record
  end
  local claim,own=ARGV[3*i-2],ARGV[3*i]
  local is_holder=type(holder_record)=='string' and string.sub(holder_record,1,32)==claim
  local head,token,final,note
  if is_holder then
    head,token,final,note=string.match(holder_record,'^(%x+[:!+](%d+))(%*?)(.*)$')
  end
  -- The value of the plain form has no token.
  if is_holder and (own=='0' or not token or token==own) then
    local lease=ARGV[3*i-1]+0
    local is_last=lease<0
    if is_last then lease=-lease end
    if final=='*' then
      if is_last then redis.call('PEXPIRE',KEYS[i],lease,'LT') end
    elseif is_last then
      redis.call('PEXPIRE',KEYS[i],lease)
    else
      redis.call('PEXPIRE',KEYS[i],lease,'GT')
    end
    -- After the first write the server refuses none for want of memory.
    if is_last and final=='' then redis.call('SET',KEYS[i],head..'*'..note,'KEEPTTL') end
    -- The last token outlives every holder. So if a claim and its last token are missing, the server
    -- has lost its data. A last token without a lifetime is not dlock's.
    if retention>0 then
      local last_token,need=KEYS[n+i],retention+lease
      local left=redis.call('PTTL',last_token)
      if left==-2 then
        -- The server may refuse this write if it has no memory. That is no loss of the lock.
        redis.pcall('SET',last_token,token or '0','NX','PX',need+lease)
      elseif left>=0 and left<need then
        redis.call('PEXPIRE',last_token,need+lease)
      end
    end
  else
    answer[#answer+1]=i
  end
end
return answer
