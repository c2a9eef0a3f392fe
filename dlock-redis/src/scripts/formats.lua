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
