-- ACQUIRE of several names at one point of the server's order. All keys are of one slot.
--
-- KEYS   the five keys of each name, as in keys.rs
-- ARGV   for each name: claim, lease (ms), weight, capacity, tokens, what to do as in ACQUIRE,
--        channel of the client, and, if any of them has a note, the note or nothing;
--        last deadline, us of the server's clock: until then the client waits for the answer
-- RETURN for each name the result of ACQUIRE; or {6, us} for all: see acquire.lua
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
if now>ARGV[#ARGV]+0 then return {6,now} end
local clock,lends,frozen=now,true,false
--%lock
-- The script reads all names before it writes the first.
local states,answers={},{}
local per=(#ARGV-1)/(#KEYS/5)
for i=0,#KEYS/5-1 do
  states[i]=load(5*i+1)
  stream(states[i])
end
for i=0,#KEYS/5-1 do
  local a=1+per*i
  local note=per>7 and ARGV[a+7]~='' and ' '..ARGV[a+7] or ''
  answers[i+1]=acquire(states[i],ARGV[a],ARGV[a+1]+0,ARGV[a+2]+0,ARGV[a+3]+0,ARGV[a+4]+0,
    ARGV[a+5]+0,ARGV[a+6],note)
end
return answers
