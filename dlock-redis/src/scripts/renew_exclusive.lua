-- RENEW_EXCLUSIVE: extends the leases of exclusive holders. All keys are of one slot.
--
-- An earlier renewal may arrive later, over another connection. So the last renewal of a claim, which
-- may shorten the lease, marks the holder's record (see keys.rs): after that, nothing extends the
-- lease. The value of the plain form has no room for a mark.
--
-- KEYS   the holder of each name
-- ARGV   for each name: claim, lease (ms, negative for the last renewal), token of the grant, or 0 if
--        it is not known; negative if plain commands took the lock, which write no token (see take.rs)
-- RETURN us of the server's clock, and the indices, from 1, of claims that are no exclusive holders,
--        or hold their locks by another grant
local time=redis.call('TIME')
local answer={time[1]*1000000+time[2]}
for i=1,#KEYS do
  -- A foreign key of one name does not affect the others.
  local holder_record=redis.pcall('GET',KEYS[i])
  if type(holder_record)=='table' and not string.find(holder_record.err,'WRONGTYPE',1,true) then
    return holder_record
  end
  local claim,own=ARGV[3*i-2],ARGV[3*i]
  local is_holder=type(holder_record)=='string' and string.sub(holder_record,1,32)==claim
  local head,token,final,note
  if is_holder then
    head,token,final,note=string.match(holder_record,'^(%x+[:!+](%d+)/?%d*)(%*?)(.*)$')
    if not head then
      head,token,final,note=string.match(holder_record,'^(%x+[:!](~)%x+)(%*?)(.*)$')
    end
  end
  local lease=ARGV[3*i-1]+0
  local is_last=lease<0
  if is_last then lease=-lease end
  local taken=string.match(own,'^%-(%d+)$')
  local is_its=own=='0' or not token or token==own or taken and (token=='~' or token==taken)
  -- A block may need the lease that it has: RENEW decides. The value of the plain form has no token.
  if is_holder and is_its and not (is_last and string.byte(holder_record,33)==43) then
    if final=='*' then
      if is_last then redis.call('PEXPIRE',KEYS[i],lease,'LT') end
    elseif is_last then
      redis.call('PEXPIRE',KEYS[i],lease)
    else
      redis.call('PEXPIRE',KEYS[i],lease,'GT')
    end
    -- After the first write the server refuses none for want of memory.
    local ends=is_last and final=='' and '*' or final
    if token=='~' and taken then
      redis.call('SET',KEYS[i],string.sub(head,1,33)..taken..ends..note,'KEEPTTL')
    elseif ends~=final then
      redis.call('SET',KEYS[i],head..ends..note,'KEEPTTL')
    end
  else
    answer[#answer+1]=i
  end
end
return answer
