-- INSPECT: the holders and waiters of a name. Writes nothing.
--
-- KEYS   holder, tokens, queue, waiters and readers of the name (see keys.rs)
-- RETURN {last token (its digits beyond 2^53), {claim, weight, capacity, token (0: not known, -1: it
--        waits), us left, us since it was granted (-1: not known), ...}}, the waiters last and in order;
--        then {claim, note, ...} if any claim has a note
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local holder,stream,queue,waiters,readers=KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5]
local out,largest,notes={},0,{}
--%formats
-- Tokens start at the clock. A waiter has none.
local function add(claim,weight,capacity,token,left,note)
  local n=#out
  out[n+1],out[n+2],out[n+3],out[n+4],out[n+5]=claim,weight+0,capacity+0,token+0,left
  out[n+6]=token+0>0 and now>=token+0 and now-token or -1
  if token+0>largest then largest=token+0 end
  local m=#notes
  if note and note~='' then notes[m+1],notes[m+2]=claim,note end
end
local last=redis.call('XREVRANGE',stream,'+','-','COUNT',1)[1]
if last then largest=token_of(last[1]) end
local holder_record=redis.call('GET',holder)
if holder_record then
  local claim,_,token,_,_,note,sending=read_holder(holder_record)
  if not claim then foreign(holder,holder_record) end
  token=token or taken_in(stream,sending) or 0
  add(claim,1073741824,1073741824,token,redis.call('PTTL',holder)*1000,string.sub(note,2))
end
for _,key in ipairs({readers,queue}) do
  local list=redis.call('ZRANGE',key,0,-1,'WITHSCORES')
  for i=1,#list,2 do
    local record=redis.call('HGET',waiters,list[i]) or ''
    local w,c,_,_,n,note=string.match(record,'^(%d+):(%d+):(%d+):(%d+):(%d+):[^ ]*(.*)$')
    if record~='' and (not w or newer(note)) then
      foreign(waiters,record,key==queue and list[i])
    end
    note=note and string.sub(note,2)
    if w and key==readers and list[i+1]-now>0 then add(list[i],w,c,n,list[i+1]-now,note) end
    if w and key==queue and n-now>0 then add(list[i],w,c,-1,n-now,note) end
  end
end
if largest>9007199254740991 then largest=string.format('%.0f',largest) end
if #notes>0 then return {largest,out,notes} end
return {largest,out}
