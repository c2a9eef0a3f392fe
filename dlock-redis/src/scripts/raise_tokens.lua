-- RAISE_TOKENS: raises the tokens of a bucket of names above a given one, even while locks are held.
--
-- KEYS   tokens of the bucket (see keys.rs)
-- ARGV   1 token
-- RETURN 1; an error if no token is left
local above=ARGV[1]+0
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local clock,lends,frozen=now,true,false
--%lock
local tokens=stream_of(KEYS[1])
local last=math.max(tokens.last+1,above,clock)
if last>LARGEST_TOKEN then return redis.error_reply('DLOCK no token is left') end
tokens.last,tokens.changed=last,true
save_token(tokens)
return 1
