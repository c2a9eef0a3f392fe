-- PROBE: which of the commands that the scripts use may not be run. Leaves nothing.
--
-- KEYS   1 a key that nobody uses
-- ARGV   1 a channel
-- RETURN the names of the commands that are refused; an error when nobody may write just now
local key=KEYS[1]
local refused={}
local function try(...)
  local answer=redis.pcall(...)
  if type(answer)=='table' and answer.err then
    -- Other codes are not about rights: READONLY, OOM, MISCONF, NOREPLICAS.
    local code=string.match(answer.err,'^%-?(%u+) ')
    if code and code~='ERR' and code~='NOPERM' then return answer end
    refused[#refused+1]=(...)
  end
end
local unready=try('SET',key,'1','PX','1000')
if unready then return unready end
try('GET',key)
try('SETRANGE',key,0,'2')
try('PEXPIRE',key,'1000')
try('PTTL',key)
try('EXISTS',key)
try('DEL',key)
if #refused==0 then
  try('ZADD',key,'1','a')
  try('ZRANGE',key,'0','0')
  try('ZRANGEBYSCORE',key,'-inf','0')
  try('ZSCORE',key,'a')
  try('ZRANK',key,'a')
  try('ZCARD',key)
  try('ZREM',key,'b')
  try('ZPOPMIN',key)
  try('HSET',key,'a','1')
  try('HGET',key,'a')
  try('HDEL',key,'a')
end
try('TIME')
local say=string.find(ARGV[1],'{',1,true) and 'SPUBLISH' or 'PUBLISH'
local answer=redis.pcall(say,ARGV[1],'')
-- Who may not use the channel can't subscribe to it either, and asks instead.
if type(answer)=='table' and not string.find(answer.err,'channel',1,true) then
  refused[#refused+1]=say
end
return refused
