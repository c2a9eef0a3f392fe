-- The globals of scripts: those that dlock's scripts may use, and none that depends on more than the
-- data. Another one is an error, as on a real server.
--
-- ARGS   1 redis.call, 2 redis.pcall
--        3 a function that returns the text of an error of redis.call
-- RETURN the environment, and the table in which it finds the globals
local call,try,text_of=...
local visible={
  assert=assert,error=error,ipairs=ipairs,next=next,pairs=pairs,select=select,string=string,
  table=table,tonumber=tonumber,tostring=tostring,type=type,unpack=unpack,
  math={
    abs=math.abs,ceil=math.ceil,floor=math.floor,fmod=math.fmod,huge=math.huge,max=math.max,
    min=math.min,modf=math.modf
  },
  redis={call=call,pcall=try}
}
local inner,type,error,tostring=pcall,type,error,tostring

-- The server replaces an error that has a text by the text.
local function answered(done,answer,...)
  if not done and type(answer)=='userdata' then answer=text_of(answer) end
  if not done and type(answer)=='table' and type(answer.err)=='string' then answer=answer.err end
  return done,answer,...
end
function visible.pcall(...) return answered(inner(...)) end

function visible.redis.error_reply(text)
  if type(text)~='string' then return {err='ERR wrong number or type of arguments'} end
  text=string.gsub(text,'^%-','')
  return {err=string.find(text,' ',1,true) and text or 'ERR '..text}
end

setmetatable(visible,{__index=function(_,name)
  error("Script attempted to access nonexistent global variable '"..tostring(name).."'",2)
end})
return setmetatable({},{
  __index=visible,
  __newindex=function() error('Attempt to modify a readonly table',2) end
}),visible
