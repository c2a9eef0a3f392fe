-- The rules of a lock over its five keys: the longest prefix of the queue that fits holds it.
--
-- Included in the scripts that change a queue. They define:
--   now        the server's clock, us
--   clock      where tokens start, us: the server's clock, or the proposal of a quorum
--   lends      whether tokens start at the server's clock, so that a block may stay out of the stream
--   frozen     whether the script grants nothing, because of the restart guard of the client
--
-- Reads come before writes, so that a foreign key of a wrong type fails the script before it has
-- changed anything.
local call=redis.call
local unpack=unpack or table.unpack
local EXCLUSIVE=1073741824
-- The largest token: beyond it numbers are not exact, and two grants would have the same one.
local LARGEST_TOKEN=9007199254740991
-- How many tokens a millisecond has: see `token_of`.
local PER_MS=1000
-- How long the keys of a queue outlive the leases in them, and how long a damaged waiter stays, ms.
local SPARE,DAMAGED_FOR=10000,600000
-- The last capture is the note, with the space before it.
local WAITER_RECORD='^(%d+):(%d+):(%d+):(%d+):(%d+):([^ ]*)(.*)$'

local function num(n) return string.format('%.0f',n) end

--%formats
local streams={}

-- The last token of a stream, and whether the script has still to write it: several names share it.
local function stream_of(key)
  local stream=streams[key]
  if stream then return stream end
  stream={key=key,last=0}
  local entry=call('XREVRANGE',key,'+','-','COUNT',1)[1]
  if entry then stream.last=token_of(entry[1]) end
  streams[key]=stream
  return stream
end

-- Reads the shared holders, and removes those whose lease has ended.
local function load_shared(s)
  local shared=call('HGET',s.waiters_key,'#')
  if not shared then return end
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

-- The state of the name whose keys begin at k, without the shared holders whose lease has ended.
-- The holder's record is read unless the caller passes it. The fields of a state:
--   holder, holder_token, mark, block, final, note, sending   the record of the exclusive holder;
--                         holder is its claim
--   stream                the last token of the name's bucket, if it was read
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
    holder_key=KEYS[k],stream_key=KEYS[k+1],queue_key=KEYS[k+2],waiters_key=KEYS[k+3],
    readers_key=KEYS[k+4],used=0,longest_lease=0
  }
  if holder_record==nil then holder_record=call('GET',s.holder_key) end
  if holder_record then
    s.holder,s.mark,s.holder_token,s.block,s.final,s.note,s.sending=read_holder(holder_record)
    if not s.holder then foreign(s.holder_key,holder_record) end
  end
  -- An exclusive holder does not share the lock. But plain commands write the holder's key before they
  -- see shared holders: until it is taken back, these hold the lock.
  if not s.holder_token then load_shared(s) end
  return s
end

-- The stream is read for a token only: renewals and polls need none.
local function stream(s)
  if not s.stream then s.stream=stream_of(s.stream_key) end
  return s.stream
end

-- The next token.
local function next_token(s)
  local token=stream(s).last+1
  if clock>token then token=clock end
  return token
end

-- Whether this number of exact tokens is left. A sum beyond 2^53 may be rounded down, so nothing is
-- subtracted from one.
local function has_tokens(s,tokens)
  return next_token(s)+(tokens-1)<=LARGEST_TOKEN
end

-- Raises the tokens above a block of which this is the last token that was used. If the clock has
-- passed it, so has each later id.
local function use_until(s,token)
  if math.floor(token/PER_MS)>=math.floor(now/1000) and token>stream(s).last then
    s.stream.last,s.stream.changed=token,true
  end
end

-- Raises the tokens above the whole block of the exclusive holder.
local function end_block(s)
  if s.mark=='+' then use_until(s,s.holder_token+s.block-1) end
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

local function write_holder(s,...)
  local block=s.block>1 and '/'..num(s.block) or ''
  call('SET',s.holder_key,s.holder..s.mark..num(s.holder_token)..block..s.final..s.note,...)
end

-- Grants the lock to a claim. Other claims may wait behind it, unless it is alone.
local function grant(s,claim,weight,capacity,tokens,lease,alone,note)
  local token=next_token(s)
  local last=token+tokens-1
  s.stream.last,s.stream.changed=last,true
  if weight==EXCLUSIVE then
    -- A block need not be reserved if its holder's key outlives it: the key ends by the same clock, so
    -- a grant after that has a larger token. A release raises the tokens above those that were used.
    -- The proposals of a quorum are no clock.
    local outlives=math.floor(last/PER_MS)<math.floor(now/1000)+lease
    if tokens>1 and outlives and lends then s.stream.last=token end
    s.holder,s.holder_token,s.block,s.final,s.note=claim,token,tokens,'',note
    s.mark=tokens>1 and '+' or alone and ':' or '!'
    write_holder(s,'PX',lease)
    s.releasing=nil
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

-- Whether a damaged waiter has to leave the queue. Its record shows no deadline, so it stays for ten
-- minutes after a script first found it. The end is in the field `?` with its claim.
local function has_to_leave(s,waiter,record)
  -- A marker: perhaps a later version reads it.
  if string.find(record,'\1',1,true) then return false end
  local leaves_at=tonumber(call('HGET',s.waiters_key,'?'..waiter))
  if leaves_at then return leaves_at<=now end
  -- The server may refuse this write if it has no memory. The next script tries again.
  redis.pcall('HSET',s.waiters_key,'?'..waiter,num(now+DAMAGED_FOR*1000))
  return false
end

-- Adds the last token to the stream. One entry is enough.
local function save_token(stream)
  if not stream or not stream.changed then return end
  local ms=math.floor(stream.last/PER_MS)
  local id=num(ms)..'-'..num(stream.last-ms*PER_MS)
  call('XADD',stream.key,'MAXLEN','~',100,id,'c','')
  stream.changed=nil
end

-- Grants the longest prefix of the queue that fits, and notifies the clients. Claims whose lease has
-- ended leave the queue. A claim whose client can't be reached keeps its position and is skipped. A
-- waiter that can't be read keeps its position, and no claim behind it is granted: s.unreadable is
-- its value and its claim.
-- Returns the token of `me`, if it is granted: the caller gets an answer, and no message.
local function promote(s,me)
  if frozen then
    -- A waiter polls until the guard of its own client is over, and then gets the lock.
    s.has_waiters=call('EXISTS',s.queue_key)==1
    s.blocked=s.has_waiters
    return nil
  end
  local my_token
  local at,unreachable=0,{}
  s.blocked=false
  while true do
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
        local token=grant(s,waiter,weight,capacity,tokens,lease,false,note)
        -- So that no other grant gets the token of a message.
        if waiter~=me and channel~='' then save_token(s.stream) end
        if waiter~=me and channel~='' and not notify(waiter,channel,token) then
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
  save_token(s.stream)
  if not (s.has_waiters or s.used>0) or s.longest_lease==0 and not s.extend then return end
  local left=call('PTTL',s.waiters_key)
  local need=s.longest_lease+SPARE
  if left<need then
    -- Longer than needed, so that not every call has to extend it.
    left=need+SPARE
    s.extend=true
  end
  if s.extend then
    call('PEXPIRE',s.waiters_key,left)
    if s.has_waiters then call('PEXPIRE',s.queue_key,left) end
    if s.used>0 then call('PEXPIRE',s.readers_key,left) end
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
    -- It is not known whose grant this is.
    if not s.holder_token then return nil end
    if s.final=='*' then
      if is_last then call('PEXPIRE',s.holder_key,lease,'LT') end
    elseif is_last then
      call('PEXPIRE',s.holder_key,lease)
    else
      call('PEXPIRE',s.holder_key,lease,'GT')
    end
    if is_last and s.final=='' then
      s.final,s.incomplete='*',true
      -- The lease may be shorter now than the block needs.
      end_block(s)
    end
    if s.incomplete then write_holder(s,'KEEPTTL') end
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
  if not call('ZSCORE',s.queue_key,claim) then return nil end
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
  if not call('ZSCORE',s.queue_key,claim) then return false end
  local record=call('HGET',s.waiters_key,claim)
  local deadline,note=string.match(record or '','^%d+:%d+:%d+:%d+:(%d+):[^ ]*(.*)$')
  if record and (not deadline or newer(note)) then foreign(s.waiters_key,record,claim) end
  call('ZREM',s.queue_key,claim)
  call('HDEL',s.waiters_key,claim)
  return deadline~=nil and deadline+0>now
end

-- Begins anew for a claim whose `SET` has written the holder's key: see take.rs. No client treats it as
-- a grant, and other claims may have come before it.
local function take_back(s,claim)
  if s.holder~=claim or s.holder_token then return end
  s.holder,s.mark,s.releasing=nil,nil,true
end

-- Deletes the holder's key if it was taken back or released, and nobody has it now.
local function leave(s)
  if s.releasing and not s.holder then call('DEL',s.holder_key) end
  s.releasing=nil
end

-- Gives the holder's key of a claim the token that its plain commands have taken: a client may rely on
-- it. If that is no grant, the claim begins anew. A claim that joins the queue behind a holder changes
-- its mark, so one behind the mark `:` was there before.
local function complete(s,claim,is_no_grant)
  if s.holder~=claim or s.holder_token then return end
  local was_queue=s.mark==':' and call('EXISTS',s.queue_key)==1
  local token=taken_in(s.stream_key,s.sending)
  if is_no_grant or was_queue or s.used>0 or not token then return take_back(s,claim) end
  s.holder_token,s.incomplete=token,true
end

-- `how` is 1 or 3 if the claim leaves the queue again if the lock is not free, and 2 or 3 if the client
-- does not know whether plain commands have taken it.
local function acquire(s,claim,lease,weight,capacity,tokens,how,channel,note)
  local fail_if_busy=how%2==1
  complete(s,claim,how>1)
  local token=renew_held(s,claim,lease)
  if token then
    promote(s)
    leave(s)
    save(s)
    return {1,token,now}
  end
  if not has_tokens(s,tokens) then
    remove_waiting(s,claim)
    promote(s)
    leave(s)
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
    leave(s)
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
  leave(s)
  save(s)
  return answer or queue_answer(s,claim)
end
