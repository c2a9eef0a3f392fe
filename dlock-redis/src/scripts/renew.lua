-- RENEW: extends the leases of holders, perhaps in a weaker mode, and of waiters, and returns the
-- state of each claim. All keys are in one slot.
--
-- KEYS   the five keys of each claim's name, as in keys.rs
-- ARGV   for each claim: claim, lease (ms, negative for the last renewal of a holder), weight,
--        capacity, and the token of a grant by plain commands (see take.rs); 0 for another grant, -1
--        for a waiting claim, -2 for a grant that the client does not know
--     last 1, only during the restart guard: nothing is granted
-- RETURN for each claim {1, token, us} held; {2, position, ms to the next lease that ends, us} waiting,
--        as in acquire.lua;
--        {5} waiting, and no token is left (2^53);
--        {7, format} a record of its name has an unknown format, and stays unchanged; 65535 is also
--        any larger format, and 0 the record of a waiter that can't be read;
--        {0} the claim does not exist, or a key of its name can't be read
local frozen=#ARGV%5==1
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local clock,lends=now,true
--%lock
local function weaken(s,claim,weight,capacity,lease)
  local function with_weight(rest)
    return string.format('%d:%d:1:%d:%.0f:%s',weight,capacity,lease,s.renewed_token,rest)
  end
  if s.holder==claim then
    if weight>=EXCLUSIVE then return end
    check(s,weight)
    end_block(s)
    s.used,s.capacity=weight,capacity
    count(s,claim,with_weight(s.final..s.note))
    local left=call('PTTL',s.holder_key)
    -- It is in the readers' key before the holder's key is deleted, because the user may lack a
    -- right: see `count`.
    call('ZADD',s.readers_key,now+left*1000,claim)
    call('DEL',s.holder_key)
    s.holder,s.mark=nil,nil
  else
    local record=call('HGET',s.waiters_key,claim)
    local before=string.match(record,'^(%d+):')+0
    if weight>=before then return end
    local rest=string.match(record,'^%d+:%d+:%d+:%d+:%d+:(%*?.*)$')
    if newer(string.match(rest,'^%*?(.*)$')) then return end
    s.used=s.used-before+weight
    count(s,claim,with_weight(rest))
  end
  s.extend=true
end
local function renew(k,claim,lease,weight,capacity,taken)
  local s=load(k)
  if s.holder==claim and not s.holder_token then
    -- Plain commands of the claim have written the key: see take.rs.
    if taken==-1 then
      complete(s,claim,call('ZSCORE',s.queue_key,claim))
    else
      local token=taken>0 and taken or taken==-2 and taken_in(s.stream_key,s.sending)
      if token then s.holder_token,s.incomplete=token,true end
    end
  end
  local is_last=lease<0
  if is_last then lease=-lease end
  local token=renew_held(s,claim,lease,is_last)
  local queued
  if token then
    s.renewed_token=token
    if lease>s.longest_lease then s.longest_lease=lease end
    weaken(s,claim,weight,capacity,lease)
    promote(s)
  else
    queued=renew_waiting(s,claim,lease)
    token=promote(s,claim)
  end
  leave(s)
  save(s)
  if token then return {1,token,now} end
  if s.unreadable then foreign(s.waiters_key,unpack(s.unreadable)) end
  if queued and s.no_token then return {5} end
  if queued then return queue_answer(s,claim) end
  return {0}
end
local answers={}
for i=0,#KEYS/5-1 do
  local a=1+5*i
  local done,answer=pcall(renew,5*i+1,ARGV[a],ARGV[a+1]+0,ARGV[a+2]+0,ARGV[a+3]+0,ARGV[a+4]+0)
  if not done then
    -- A name that can't be read does not affect the others. A refusal by the server fails all.
    local text=type(answer)=='table' and answer.err or tostring(answer)
    local lua=string.match(text,'^@?user_script: ?%d+: (.*)$') or ''
    local format=string.match(text,'^DLOCK format (%d+)')
    local its_own=format or string.find(text,'WRONGTYPE',1,true)
      or string.find(text,'is not of dlock',1,true)
      or string.find(lua,'^attempt to ') or string.find(lua,'^bad argument #')
    if not its_own then return redis.error_reply((string.gsub(text,'^%-',''))) end
    -- The server does not convert a larger number to an integer reliably.
    if format then answer={7,math.min(format+0,65535)}
    elseif string.find(text,'^DLOCK the waiter ') then answer={7,0}
    else answer={0} end
  end
  answers[i+1]=answer
end
return answers
