-- Records of an unknown format and of other programs. Included in lock.lua and inspect.lua.

-- Ends the script, or in RENEW the part for one name, before anything is written for the claim. The
-- waiter is the one whose record this is.
local function foreign(key,value,waiter)
  local format=value and string.match(value,'\1(%d+)')
  if format then error('DLOCK format '..format..' in the key '..key,0) end
  if waiter then error('DLOCK the waiter '..waiter..' in the key '..key..' is not of dlock',0) end
  error('DLOCK the key '..key..' is not of dlock',0)
end

-- Returns the format of a record if it has a marker in the place of its note. Records of format 1,
-- which this version reads and writes, have none.
local function newer(note) return note~='' and string.match(note,'^ \1(%d+)') end

-- Reads the holder's record: claim, mark, first token, number of tokens in a block, `*`, and the note
-- with the space before it. If plain commands have written it, it has no token, and the last result is
-- the number of their sending: see take.rs. The claim is nil for a record that can't be read.
local function read_holder(record)
  local claim,mark,token,block,final,note=string.match(record,'^(%x+)([:!+])(%d+)/?(%d*)(%*?)(.*)$')
  local sending
  if not claim then
    claim,mark,sending,final,note=string.match(record,'^(%x+)([:!])~(%x+)(%*?)(.*)$')
  end
  if claim and (note~='' and string.byte(note)~=32 or newer(note)) then claim=nil end
  return claim,mark,tonumber(token),tonumber(block) or 1,final,note,sending
end

-- The token of an id of a stream: ms*1000+sequence. An id with a larger sequence is no token, and
-- counts as the last one of its millisecond.
local function token_of(id)
  local ms,sequence=string.match(id,'^(%d+)%-(%d+)$')
  return ms*1000+math.min(sequence+0,999)
end

-- The token that plain commands have taken in this sending. It stands in the stream as long as few
-- others have come after it. An id with a larger sequence than a token has been granted to nobody.
local function taken_in(stream,sending)
  for _,entry in ipairs(redis.call('XREVRANGE',stream,'+','-','COUNT',1000)) do
    if entry[2][2]==sending then
      local ms,sequence=string.match(entry[1],'^(%d+)%-(%d+)$')
      local token=ms*1000+sequence
      if sequence+0<1000 and token<=9007199254740991 then return token end
      return
    end
  end
end
