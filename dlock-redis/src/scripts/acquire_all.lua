-- ACQUIRE of several names at one point of the server's order. All keys are of one slot.
--
-- KEYS   H F Q W R of each name
-- ARGV   1 retention of F, ms
--        then for each name: claim, lease (ms), weight, capacity, tokens, 1 or 0 (leave or wait),
--        channel of the client, and, if any of them has a note, the note or nothing;
--        last deadline, us of the server's clock: until then the client waits for the answer
-- RETURN for each name the result of ACQUIRE, never an integer; or {6, us} for all: see quick.lua
local ret=ARGV[1]+0
local T=redis.call('TIME')
local us=T[1]*1000000+T[2]
if us>ARGV[#ARGV]+0 then return {6,us} end
local clock,frozen=us,false
--%lock
-- The script reads all names before it writes the first.
local states,answers={},{}
local per=(#ARGV-2)/(#KEYS/5)
for i=0,#KEYS/5-1 do states[i]=open(5*i+1) end
for i=0,#KEYS/5-1 do
  local a=2+per*i
  local note=per>7 and ARGV[a+7]~='' and ' '..ARGV[a+7] or ''
  answers[i+1]=acquire(states[i],ARGV[a],ARGV[a+1]+0,ARGV[a+2]+0,ARGV[a+3]+0,ARGV[a+4]+0,
    ARGV[a+5]=='1',ARGV[a+6],note)
end
return answers
