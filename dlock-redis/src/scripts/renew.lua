-- RENEW of exclusive holders: starts their leases anew. All keys are of one slot.
--
-- KEYS   H of each name
-- ARGV   for each name: claim, lease (ms)
-- RETURN the indices, from 1, of those that hold nothing exclusively
local gone={}
for i=1,#KEYS do
  -- Something foreign in one place is not the others' loss.
  local o=redis.pcall('GET',KEYS[i])
  if type(o)=='table' and not string.find(o.err,'WRONGTYPE',1,true) then return o end
  if type(o)=='string' and string.sub(o,1,32)==ARGV[2*i-1] then
    redis.call('PEXPIRE',KEYS[i],ARGV[2*i])
  else
    gone[#gone+1]=i
  end
end
return gone
