-- INSPECT: the holders and waiters of a name. Writes nothing.
--
-- KEYS   H F Q W R of the name
-- RETURN {last token (its digits beyond 2^53), {claim, weight, capacity, token (0: it waits), us left,
--        us since it was granted (-1: not known), ...}}, the waiters last and in order; then
--        {claim, note, ...} if any claim has a note
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
local H,F,Q,W,R=KEYS[1],KEYS[2],KEYS[3],KEYS[4],KEYS[5]
local out,last,notes,past={},0,{},nil
--%formats
-- Tokens start at the clock. A waiter has none.
local function add(id,weight,cap,token,left,note)
  local n=#out
  out[n+1],out[n+2],out[n+3],out[n+4],out[n+5]=id,weight+0,cap+0,token+0,left
  out[n+6]=token+0>0 and us>=token+0 and us-token or -1
  if token+0>last then last=token+0 end
  local m=#notes
  if note and note~='' then notes[m+1],notes[m+2]=id,note end
end
local o=redis.call('GET',H)
if o then
  local id,token,note=string.match(o,'^(%x+)[:!+](%d+)%*?(.*)$')
  if not id or note~='' and string.byte(note)~=32 or newer(note) then foreign(H,o) end
  add(id,1073741824,1073741824,token,redis.call('PTTL',H)*1000,string.sub(note,2))
end
local f=redis.call('GET',F)
if f then
  local t,q=string.match(f,'^(%d+)(q?)$')
  if not t then foreign(F,f) end
  if t+0>last then last=t+0 end
  if t+0>9007199254740991 then past=t end
  if q=='q' then
    for _,key in ipairs({R,Q}) do
      local list=redis.call('ZRANGE',key,0,-1,'WITHSCORES')
      for i=1,#list,2 do
        local held=redis.call('HGET',W,list[i]) or ''
        local w,c,_,_,n,note=string.match(held,'^(%d+):(%d+):(%d+):(%d+):(%d+):[^ ]*(.*)$')
        if held~='' and (not w or newer(note)) then foreign(W,held,key==Q and list[i]) end
        note=note and string.sub(note,2)
        if w and key==R and list[i+1]-us>0 then add(list[i],w,c,n,list[i+1]-us,note) end
        if w and key==Q and n-us>0 then add(list[i],w,c,0,n-us,note) end
      end
    end
  end
end
if #notes>0 then return {past or last,out,notes} end
return {past or last,out}
