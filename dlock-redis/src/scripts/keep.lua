-- KEEP: extends the leases of holders, perhaps in a weaker mode, and of waiters, and returns the
-- state of each claim. All keys are in one slot.
--
-- KEYS   H F Q W R of each claim's name
-- ARGV   1 retention of F, ms
--        then for each claim: claim, lease (ms, negative for the last renewal of a holder), weight,
--        capacity
--     last 1, only during the restart guard: nothing is granted
-- RETURN for each claim {1, token, us} held; {2, place, ms to the next lease that ends, us} waiting, as
--        in quick.lua;
--        {5} waiting, and no token is left (2^53);
--        {7, format} a record of its name has an unknown format, and stays unchanged; 65535 is also
--        any larger format, and 0 the record of a waiter that can't be read;
--        {0} the claim does not exist, or a key of its name can't be read
local ret=ARGV[1]+0
local frozen=#ARGV%4==2
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
local clock=us
--%lock
local function weaken(s,id,weight,cap,lease)
  local function record(rest) return string.format('%d:%d:1:%d:%.0f:%s',weight,cap,lease,s.kept,rest) end
  if s.owner==id then
    if weight>=WHOLE then return end
    check(s,weight)
    s.used,s.cap=weight,cap
    count(s,id,record(s.final..s.note))
    -- The flag announces the shared holders to every other script.
    if not s.flag then call('SET',s.F,num(s.t)..'q','KEEPTTL') end
    local left=call('PTTL',s.H)
    -- It is in R before H is deleted, because the user may lack a right: see `count`.
    call('ZADD',s.R,us+left*1000,id)
    call('DEL',s.H)
    s.owner,s.mark=nil,nil
  else
    local held=call('HGET',s.W,id)
    local before=string.match(held,'^(%d+):')+0
    if weight>=before then return end
    local rest=string.match(held,'^%d+:%d+:%d+:%d+:%d+:(%*?.*)$')
    if newer(string.match(rest,'^%*?(.*)$')) then return end
    s.used=s.used-before+weight
    count(s,id,record(rest))
  end
  s.flag,s.fresh=true,true
end
local function keep(k,id,lease,weight,cap)
  local s=open(k)
  local last=lease<0
  if last then lease=-lease end
  local token=hold(s,id,lease,last)
  local queued
  if token then
    s.kept=token
    if not s.was then
      -- The server may refuse this write if it has no memory. That is no loss of the lock.
      local set=redis.pcall('SET',s.F,num(token),'NX','PX',ret+lease)
      if type(set)=='table' and set.ok then s.t,s.was=token,num(token) end
    end
    if lease>s.need then s.need=lease end
    weaken(s,id,weight,cap,lease)
    promote(s)
  else
    queued=stay(s,id,lease)
    token=promote(s,id)
  end
  close(s)
  if token then return {1,token,us} end
  if s.unread then foreign(s.W,unpack(s.unread)) end
  if queued and s.spent then return {5} end
  if queued then return standing(s,id) end
  return {0}
end
local answers={}
for i=0,#KEYS/5-1 do
  local a=2+4*i
  local done,answer=pcall(keep,5*i+1,ARGV[a],ARGV[a+1]+0,ARGV[a+2]+0,ARGV[a+3]+0)
  if not done then
    -- A name that can't be read does not affect the others. A refusal by the server fails all.
    local text=type(answer)=='table' and answer.err or tostring(answer)
    local lua=string.match(text,'^@?user_script: ?%d+: (.*)$') or ''
    local format=string.match(text,'^DLOCK format (%d+)')
    local its_own=format or string.find(text,'WRONGTYPE',1,true) or string.find(text,'is not of dlock',1,true)
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
