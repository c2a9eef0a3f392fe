-- The rules of a lock over its five keys: the longest prefix of the queue that fits holds it.
--
-- Included in the scripts that change a queue. They define:
--   now        the server's clock, us
--   clock      where tokens start, us: the server's clock, or the proposal of a quorum
--   retention  how long the last token of a free lock is kept, ms
--   frozen     whether the script grants nothing, because of the restart guard of the client
--
-- Reads come before writes, so that a foreign key of a wrong type fails the script before it has
-- changed anything.
local call=redis.call
local unpack=unpack or table.unpack
local EXCLUSIVE=1073741824
-- The largest token: beyond it numbers are not exact, and two grants would have the same one.
local LARGEST_TOKEN=9007199254740991
-- The last capture is the note, with the space before it.
local WAITER_RECORD='^(%d+):(%d+):(%d+):(%d+):(%d+):([^ ]*)(.*)$'

local function num(n) return string.format('%.0f',n) end

--%formats
-- The state of the name whose keys begin at k, without the shared holders whose lease has ended.
-- The holder's record is read unless the caller passes it. The fields of a state:
--   holder, holder_token, mark, final, note   the record of the exclusive holder; holder is its claim
--   last_token, flagged   the last token, and whether there may be waiters or shared holders
--   token_record          the last token and its flag as the server has them
--   inexact               the last token as text, if scripts can't count that far
--   used, capacity        the weight of all shared holders, and the capacity that they use
--   longest_lease         the longest lease in the queue and of shared holders, ms
--   has_waiters, blocked  whether claims wait, and whether the next of them can't be granted
--   last_ticket           the last ticket in the queue
--   queue_capacity        the capacity of the next waiter
--   no_token, unreadable  why the next waiter is blocked: no token is left, or its record
--   extend, recount       whether `save` extends the lifetimes and writes the count
--   releasing             whether the holder's key has to be deleted, because it is released
local function load(k,holder_record)
  local s={
    holder_key=KEYS[k],token_key=KEYS[k+1],queue_key=KEYS[k+2],waiters_key=KEYS[k+3],
    readers_key=KEYS[k+4],last_token=0,used=0,longest_lease=0
  }
  local token_record=call('GET',s.token_key)
  if token_record then
    local digits,flag=string.match(token_record,'^(%d+)(q?)$')
    if not digits then foreign(s.token_key,token_record) end
    s.last_token,s.flagged=digits+0,flag=='q'
    -- It stays unchanged, and nothing is granted.
    if s.last_token>LARGEST_TOKEN then s.inexact=digits end
  end
  s.token_record=token_record
  if holder_record==nil then holder_record=call('GET',s.holder_key) end
  if holder_record then
    local claim,mark,token,final,note=string.match(holder_record,'^(%x+)([:!+])(%d+)(%*?)(.*)$')
    if not claim or note~='' and string.byte(note)~=32 or newer(note) then
      foreign(s.holder_key,holder_record)
    end
    s.holder,s.mark,s.holder_token,s.final,s.note=claim,mark,token+0,final,note
  end
  -- An exclusive holder does not share the lock.
  local shared=s.flagged and not s.holder and call('HGET',s.waiters_key,'#')
  if shared then
    local capacity,used=string.match(shared,'^(%d+):(%d+)$')
    if not capacity then foreign(s.waiters_key,shared) end
    s.capacity,s.used=capacity+0,used+0
    call('ZCARD',s.queue_key)
    local ended,weights=call('ZRANGEBYSCORE',s.readers_key,'-inf',now),{}
    for i,h in ipairs(ended) do
      weights[i]=string.match(call('HGET',s.waiters_key,h) or '0:','^(%d+):') or foreign(s.waiters_key)
    end
    for i,h in ipairs(ended) do
      call('ZREM',s.readers_key,h)
      call('HDEL',s.waiters_key,h)
      s.used,s.recount=s.used-weights[i],true
    end
    -- A script that was refused a command may have left a count without its holders.
    if s.used>0 and call('ZCARD',s.readers_key)==0 then s.used,s.recount=0,true end
  end
  return s
end

-- The next token.
local function next_token(s)
  local token=s.last_token+1
  if clock>token then token=clock end
  return token
end

-- Whether this number of exact tokens is left. A sum beyond 2^53 may be rounded down, so nothing is
-- subtracted from one.
local function has_tokens(s,tokens)
  return not s.inexact and next_token(s)+(tokens-1)<=LARGEST_TOKEN
end

-- Fails if a key that the claim needs is foreign. Call it before anything is written or published.
-- Removes holders without a count, which a script may have left that was refused a command.
local function check(s,weight)
  call('ZCARD',s.queue_key)
  call('HGET',s.waiters_key,'#')
  if weight<EXCLUSIVE and call('ZCARD',s.readers_key)>0 and s.used==0 then
    call('DEL',s.readers_key)
  end
end

-- Writes the record of a shared holder and the count of all. If a user lacks the right to a command,
-- a script ends there and keeps what it has written. So a holder is counted before it is in the
-- readers' key, and until it is not. Then the count is never too small. `load` corrects one that is
-- too large.
local function count(s,claim,record)
  call('HSET',s.waiters_key,claim,record,'#',num(s.capacity)..':'..num(s.used))
end

-- Grants the lock to a claim. Other claims may wait behind it, unless it is alone.
local function grant(s,claim,weight,capacity,tokens,lease,alone,note)
  local token=next_token(s)
  s.last_token=token+tokens-1
  if weight==EXCLUSIVE then
    local mark=tokens>1 and '+' or alone and ':' or '!'
    call('SET',s.holder_key,claim..mark..num(token)..note,'PX',lease)
    s.holder,s.holder_token,s.mark,s.final,s.note=claim,token,mark,'',note
  else
    if s.used==0 then s.extend=true end
    s.used,s.capacity=s.used+weight,capacity
    count(s,claim,string.format('%d:%d:%d:%d:%.0f:%s',weight,capacity,tokens,lease,token,note))
    -- The former holder has released the lock.
    if s.releasing then call('DEL',s.holder_key) s.releasing=nil end
    call('ZADD',s.readers_key,now+lease*1000,claim)
    if lease>s.longest_lease then s.longest_lease=lease end
  end
  return token
end

local function fits(s,weight,capacity)
  return not s.holder and s.used+weight<=capacity
end

-- Publishes the grant of a claim to its client. Returns false if no subscriber received it and the
-- claim can be skipped. A claim of a multi-lock can't, because the multi-lock could wait here for a
-- later one that waits for it in another queue: its channel begins with an exclamation mark. A client
-- that has no channel finds the grant by polling.
local function notify(waiter,channel,token)
  local strict=string.sub(channel,1,1)=='!'
  if strict then channel=string.sub(channel,2) end
  local publish=string.find(channel,'{',1,true) and 'SPUBLISH' or 'PUBLISH'
  return redis.pcall(publish,channel,waiter..' '..num(token)..' '..num(now))~=0 or strict
end

-- Whether a damaged waiter has to leave the queue. Its record shows no deadline, so it stays for the
-- retention after a script first found it, which is the time in the field `?` with its claim.
local function has_to_leave(s,waiter,record)
  -- A marker: perhaps a later version reads it.
  if string.find(record,'\1',1,true) then return false end
  local leaves_at=tonumber(call('HGET',s.waiters_key,'?'..waiter))
  if leaves_at then return leaves_at<=now end
  -- The server may refuse this write if it has no memory. The next script tries again.
  redis.pcall('HSET',s.waiters_key,'?'..waiter,num(now+retention*1000))
  return false
end

-- Grants the longest prefix of the queue that fits, and notifies the clients. Claims whose lease has
-- ended leave the queue. A claim whose client can't be reached keeps its position and is skipped. A
-- waiter that can't be read keeps its position, and no claim behind it is granted: s.unreadable is
-- its value and its claim.
-- Returns the token of `me`, if it is granted: the caller gets an answer, and no message.
local function promote(s,me)
  if frozen then
    -- A waiter polls until the guard of its own client is over, and then gets the lock.
    s.has_waiters=s.flagged and call('EXISTS',s.queue_key)==1
    s.blocked=s.has_waiters
    return nil
  end
  local my_token
  local at,unreachable=0,{}
  s.blocked=false
  while s.flagged do
    if s.holder then
      s.last_ticket=call('ZRANGE',s.queue_key,-1,-1,'WITHSCORES')[2]
      s.blocked=s.last_ticket~=nil
      break
    end
    -- Two entries: the next claim, and whether another one waits behind it.
    local entry=call('ZRANGE',s.queue_key,at,at+1,'WITHSCORES')
    local waiter=entry[1]
    if not waiter then break end
    local record=call('HGET',s.waiters_key,waiter)
    local weight,capacity,tokens,lease,deadline,channel,note=
      string.match(record or '',WAITER_RECORD)
    if not record or weight and deadline+0<=now or not weight and has_to_leave(s,waiter,record) then
      call('ZREM',s.queue_key,waiter)
      call('HDEL',s.waiters_key,waiter,'?'..waiter)
    elseif not weight or newer(note) then
      s.blocked,s.unreadable=true,{record,waiter}
      break
    else
      weight,capacity,tokens,lease=weight+0,capacity+0,tokens+0,lease+0
      s.queue_capacity=capacity
      if not fits(s,weight,capacity) then
        s.blocked=true
        break
      end
      if not has_tokens(s,tokens) then
        s.blocked,s.no_token=true,true
        break
      end
      if unreachable[channel] and waiter~=me then
        at=at+1
      else
        if weight<EXCLUSIVE and s.used==0 then check(s,weight) end
        -- ZREM is allowed without memory. Once a script has written, the server refuses none of its
        -- later writes for want of memory. It may refuse one because the user lacks the right to it.
        -- So the message follows the writes of the grant.
        call('ZREM',s.queue_key,waiter)
        call('HDEL',s.waiters_key,waiter)
        local before=s.last_token
        local token=grant(s,waiter,weight,capacity,tokens,lease,false,note)
        if waiter~=me and channel~='' and not notify(waiter,channel,token) then
          s.last_token=before
          if weight==EXCLUSIVE then
            call('DEL',s.holder_key)
            s.holder,s.mark=nil,nil
          else
            call('ZREM',s.readers_key,waiter)
            s.used,s.recount=s.used-weight,true
          end
          call('HSET',s.waiters_key,waiter,record)
          call('ZADD',s.queue_key,entry[2],waiter)
          unreachable[channel],s.extend,at=true,true,at+1
        else
          if waiter==me then my_token=token end
          if s.holder then
            s.blocked=entry[3]~=nil
            break
          end
        end
      end
    end
  end
  s.has_waiters=s.blocked or at>0
  return my_token
end

-- Writes the last token, the count of shared holders, and lifetimes that outlast all entries.
local function save(s)
  if s.recount then
    if s.used>0 then
      call('HSET',s.waiters_key,'#',num(s.capacity)..':'..num(s.used))
    else
      call('HDEL',s.waiters_key,'#')
    end
  end
  if not (s.has_waiters or s.used>0) then
    local token_record=s.inexact or num(s.last_token)
    if s.last_token>0 and token_record~=s.token_record then
      call('SET',s.token_key,token_record,'PX',retention+s.longest_lease)
    elseif s.longest_lease>0 and call('PTTL',s.token_key)<retention+s.longest_lease then
      call('PEXPIRE',s.token_key,retention+s.longest_lease)
    end
    return
  end
  local token_record=(s.inexact or num(s.last_token))..'q'
  if s.longest_lease==0 and not s.extend then
    if s.token_record~=token_record then call('SET',s.token_key,token_record,'KEEPTTL') end
    return
  end
  -- The lifetime of the waiters' key counts as well, since a renewal extends that of the last token
  -- alone.
  local left=math.min(call('PTTL',s.token_key),call('PTTL',s.waiters_key))
  local need=s.longest_lease+retention
  if left<need then
    -- Longer than needed, so that not every call has to extend it.
    left=need+retention
    s.extend=true
  end
  if s.extend then
    call('SET',s.token_key,token_record,'PX',left)
    call('PEXPIRE',s.waiters_key,left)
    if s.has_waiters then call('PEXPIRE',s.queue_key,left) end
    if s.used>0 then call('PEXPIRE',s.readers_key,left) end
  elseif s.token_record~=token_record then
    call('SET',s.token_key,token_record,'KEEPTTL')
  end
end

-- The time until the first lease of a holder ends, in ms.
local function next_end(s)
  if s.holder then return call('PTTL',s.holder_key)+1 end
  local first=call('ZRANGE',s.readers_key,0,0,'WITHSCORES')[2]
  if not first then return 1 end
  return math.ceil((first-now)/1000)
end

-- The answer for a waiting claim.
local function queue_answer(s,claim)
  local before=call('ZRANK',s.queue_key,claim)
  return {2,before+1,before==0 and next_end(s) or 0,now}
end

-- The token of a claim that holds the lock. Its lease is extended. A late request never shortens it,
-- except for the last renewal, which marks the claim: then nothing extends the lease.
local function renew_held(s,claim,lease,is_last)
  if s.holder==claim then
    if s.final=='*' then
      if is_last then call('PEXPIRE',s.holder_key,lease,'LT') end
    elseif is_last then
      call('PEXPIRE',s.holder_key,lease)
    else
      call('PEXPIRE',s.holder_key,lease,'GT')
    end
    if is_last and s.final=='' then
      s.final='*'
      local record=call('GET',s.holder_key)
      call('SET',s.holder_key,string.gsub(record,'^(%x+[:!+]%d+)','%1*',1),'KEEPTTL')
    end
    return s.holder_token
  end
  local ends=s.used>0 and call('ZSCORE',s.readers_key,claim)
  if not ends then return nil end
  local record=call('HGET',s.waiters_key,claim) or ''
  local head,token,final,note=string.match(record,'^(%d+:%d+:%d+:%d+:(%d+):)(%*?)(.*)$')
  if not token then foreign(s.waiters_key) end
  -- Claims are renewed even if the server has no memory: ZREM is allowed then, and after it no
  -- write is refused.
  call('ZREM',s.queue_key,'')
  local later=now+lease*1000
  if final=='*' then
    if is_last and later<ends+0 then call('ZADD',s.readers_key,later,claim) end
  elseif is_last or ends+0<later then
    call('ZADD',s.readers_key,later,claim)
  end
  if is_last and final=='' then call('HSET',s.waiters_key,claim,head..'*'..note) end
  if lease>s.longest_lease then s.longest_lease=lease end
  return token+0
end

-- Extends the lease of a waiting claim. Returns nil if it does not wait, false if its lease has
-- ended.
local function renew_waiting(s,claim,lease)
  if not s.flagged or not call('ZSCORE',s.queue_key,claim) then return nil end
  local record=call('HGET',s.waiters_key,claim)
  local weight,capacity,tokens,former_lease,deadline,channel,note=
    string.match(record or '',WAITER_RECORD)
  if record and (not weight or newer(note)) then foreign(s.waiters_key,record,claim) end
  if not record or deadline+0<=now then return false end
  call('ZREM',s.queue_key,'')
  local later=now+lease*1000
  if later<deadline+0 then later=deadline+0 end
  local head=weight..':'..capacity..':'..tokens..':'..former_lease..':'
  call('HSET',s.waiters_key,claim,head..num(later)..':'..channel..note)
  if lease>s.longest_lease then s.longest_lease=lease end
  return true
end

-- Removes a waiting claim from the queue. Returns false if it was not there or its lease has ended.
local function remove_waiting(s,claim)
  if not s.flagged or not call('ZSCORE',s.queue_key,claim) then return false end
  local record=call('HGET',s.waiters_key,claim)
  local deadline,note=string.match(record or '','^%d+:%d+:%d+:%d+:(%d+):[^ ]*(.*)$')
  if record and (not deadline or newer(note)) then foreign(s.waiters_key,record,claim) end
  call('ZREM',s.queue_key,claim)
  call('HDEL',s.waiters_key,claim)
  return deadline~=nil and deadline+0>now
end

local function acquire(s,claim,lease,weight,capacity,tokens,fail_if_busy,channel,note)
  local token=renew_held(s,claim,lease)
  if token then
    promote(s)
    save(s)
    return {1,token,now}
  end
  if not has_tokens(s,tokens) then
    remove_waiting(s,claim)
    promote(s)
    save(s)
    return {5}
  end
  local queued=renew_waiting(s,claim,lease)
  if queued==false then remove_waiting(s,claim) end
  token=promote(s,claim)
  local answer
  if token then
    answer={1,token,now}
  elseif s.unreadable then
    save(s)
    foreign(s.waiters_key,unpack(s.unreadable))
  elseif queued then
    if fail_if_busy then
      remove_waiting(s,claim)
      promote(s)
      answer={3,now}
    end
  else
    local other=s.holder and EXCLUSIVE or s.used>0 and s.capacity
      or s.has_waiters and s.queue_capacity
    if other and other~=capacity then
      answer={4,other}
    elseif not s.blocked and fits(s,weight,capacity) then
      if weight<EXCLUSIVE and s.used==0 then check(s,weight) end
      token=grant(s,claim,weight,capacity,tokens,lease,not s.has_waiters,note)
      answer={1,token,now}
    elseif fail_if_busy then
      answer={3,now}
    else
      if not s.has_waiters then check(s,weight) end
      if s.has_waiters then
        s.last_ticket=s.last_ticket or call('ZRANGE',s.queue_key,-1,-1,'WITHSCORES')[2]
      else
        s.extend=true
      end
      call('ZADD',s.queue_key,(s.last_ticket or 0)+1,claim)
      local ends=now+lease*1000
      local record=string.format('%d:%d:%d:%d:%.0f:%s',weight,capacity,tokens,lease,ends,channel..note)
      call('HSET',s.waiters_key,claim,record)
      -- From now on the holder's release has to read the queue: see the short path in release.lua.
      if s.mark==':' then call('SETRANGE',s.holder_key,32,'!') end
      if lease>s.longest_lease then s.longest_lease=lease end
      answer={2,s.has_waiters and 2 or 1,s.has_waiters and 0 or next_end(s),now}
      s.has_waiters=true
    end
  end
  save(s)
  return answer or queue_answer(s,claim)
end
