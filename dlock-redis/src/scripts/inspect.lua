-- INSPECT: the holders and waiters of a name. Writes nothing.
--
-- KEYS   holder, last token, queue, waiters and readers of the name (see keys.rs)
-- RETURN {last token (its digits beyond 2^53), {claim, weight, capacity, token (0: it waits), us left,
--        us since it was granted (-1: not known), ...}}, the waiters last and in order; then
--        {claim, note, ...} if any claim has a note
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local holder,last_token,queue,waiters,readers=KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5]
local out,largest,notes,inexact={},0,{},nil
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
local holder_record=redis.call('GET',holder)
if holder_record then
  local claim,token,note=string.match(holder_record,'^(%x+)[:!+](%d+)%*?(.*)$')
  if not claim or note~='' and string.byte(note)~=32 or newer(note) then
    foreign(holder,holder_record)
  end
  add(claim,1073741824,1073741824,token,redis.call('PTTL',holder)*1000,string.sub(note,2))
end
local token_record=redis.call('GET',last_token)
if token_record then
  local t,flag=string.match(token_record,'^(%d+)(q?)$')
  if not t then foreign(last_token,token_record) end
  if t+0>largest then largest=t+0 end
  if t+0>9007199254740991 then inexact=t end
  if flag=='q' then
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
        if w and key==queue and n-now>0 then add(list[i],w,c,0,n-now,note) end
      end
    end
  end
end
if #notes>0 then return {inexact or largest,out,notes} end
return {inexact or largest,out}
