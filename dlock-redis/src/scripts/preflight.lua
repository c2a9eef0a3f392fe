-- PREFLIGHT: tries each command that dlock needs on its keys, and returns the refused ones.
-- Leaves no keys.
--
-- KEYS   the five keys of an unused name; in the plain form, the key of an unused name
-- ARGV   1 a channel; empty: nothing is published
--        2 the key of the plain form, if it is not in KEYS
-- RETURN {command, error, ...}: the refused commands; an error if the server accepts no writes at
--        present
local holder,tokens,queue,waiters,readers=KEYS[1] or ARGV[2],KEYS[2],KEYS[3],KEYS[4],KEYS[5]
local refused={}
local function try(...)
  local answer=redis.pcall(...)
  if type(answer)=='table' and answer.err then
    -- Other codes are not about rights: READONLY, OOM, MISCONF, NOREPLICAS.
    local code=string.match(answer.err,'^%-?(%u+) ')
    if code and code~='ERR' and code~='NOPERM' then return answer end
    refused[#refused+1]=(...)
    refused[#refused+1]=answer.err
  end
end
local unready=try('SET',holder,'1','PX','1000')
if unready then return unready end
try('GET',holder)
try('PEXPIRE',holder,'1000')
try('PTTL',holder)
try('DEL',holder)
if tokens then
  try('XADD',tokens,'MAXLEN','~','1','*','c','')
  try('XREVRANGE',tokens,'+','-','COUNT','1')
  redis.pcall('DEL',tokens)
end
if tokens and #refused==0 then
  redis.pcall('SET',holder,'1','PX','1000')
  try('SETRANGE',holder,0,'2')
  redis.pcall('DEL',holder)
  for _,key in ipairs({queue,readers}) do
    try('ZADD',key,'1','a')
    try('PEXPIRE',key,'1000')
    try('ZRANGE',key,'0','0')
    try('ZSCORE',key,'a')
    try('ZCARD',key)
    try('ZREM',key,'b')
  end
  try('ZRANGEBYSCORE',readers,'-inf','0')
  try('ZRANK',queue,'a')
  try('EXISTS',queue)
  try('ZPOPMIN',queue)
  redis.pcall('ZREM',readers,'a')
  try('HSET',waiters,'a','1')
  try('PEXPIRE',waiters,'1000')
  try('PTTL',waiters)
  try('HGET',waiters,'a')
  try('HDEL',waiters,'a')
end
try('TIME')
if ARGV[1]~='' then
  local publish=string.find(ARGV[1],'{',1,true) and 'SPUBLISH' or 'PUBLISH'
  local answer=redis.pcall(publish,ARGV[1],'')
  -- A user that may not use the channel can't subscribe to it either, and polls instead.
  if type(answer)=='table' and not string.find(answer.err,'channel',1,true) then
    refused[#refused+1]=publish
    refused[#refused+1]=answer.err
  end
end
return refused
