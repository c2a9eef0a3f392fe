-- The rules of a lock over its five keys: the longest prefix of the queue that fits holds it.
--
-- Needs us (the server's clock), clock (where tokens start), ret (retention of F, ms) and frozen
-- (whether it grants nothing, because of the restart guard of the client). Reads come before writes, so that a foreign key of a wrong type fails the script before it has changed
-- anything.
local call=redis.call
local unpack=unpack or table.unpack
local WHOLE=1073741824
-- The largest token: beyond it numbers are not exact, and two grants would have the same one.
local MOST=9007199254740991
-- The last capture is the note, with the space before it.
local WAITS='^(%d+):(%d+):(%d+):(%d+):(%d+):([^ ]*)(.*)$'

local function num(n) return string.format('%.0f',n) end

--%formats
-- The state of the name whose keys begin at k, without the shared holders whose lease has ended.
-- The value of H is read unless the caller passes it.
local function open(k,o)
  local s={H=KEYS[k],F=KEYS[k+1],Q=KEYS[k+2],W=KEYS[k+3],R=KEYS[k+4],t=0,used=0,need=0}
  local f=call('GET',s.F)
  if f then
    local t,q=string.match(f,'^(%d+)(q?)$')
    if not t then foreign(s.F,f) end
    s.t,s.flag=t+0,q=='q'
    -- It stays unchanged, and nothing is granted.
    if s.t>MOST then s.past=t end
  end
  s.was=f
  if o==nil then o=call('GET',s.H) end
  if o then
    local owner,mark,token,final,note=string.match(o,'^(%x+)([:!+])(%d+)(%*?)(.*)$')
    if not owner or note~='' and string.byte(note)~=32 or newer(note) then foreign(s.H,o) end
    s.owner,s.mark,s.token,s.final,s.note=owner,mark,token+0,final,note
  end
  -- The holder in H does not share the lock.
  local shared=s.flag and not s.owner and call('HGET',s.W,'#')
  if shared then
    local cap,used=string.match(shared,'^(%d+):(%d+)$')
    if not cap then foreign(s.W,shared) end
    s.cap,s.used=cap+0,used+0
    call('ZCARD',s.Q)
    local ended,weights=call('ZRANGEBYSCORE',s.R,'-inf',us),{}
    for i,h in ipairs(ended) do
      weights[i]=string.match(call('HGET',s.W,h) or '0:','^(%d+):') or foreign(s.W)
    end
    for i,h in ipairs(ended) do
      call('ZREM',s.R,h)
      call('HDEL',s.W,h)
      s.used,s.dirty=s.used-weights[i],true
    end
    -- A script that was refused a command may have left a count without its holders.
    if s.used>0 and call('ZCARD',s.R)==0 then s.used,s.dirty=0,true end
  end
  return s
end

-- The next token.
local function next_token(s)
  local token=s.t+1
  if clock>token then token=clock end
  return token
end

-- Whether this number of exact tokens is left. A sum beyond 2^53 may be rounded down, so nothing is
-- subtracted from one.
local function has_tokens(s,block) return not s.past and next_token(s)+(block-1)<=MOST end

-- Fails if a key that the claim needs is foreign. Call it before anything is written or published.
-- Removes holders without a count, which a script may have left that was refused a command.
local function check(s,weight)
  call('ZCARD',s.Q)
  call('HGET',s.W,'#')
  if weight<WHOLE and call('ZCARD',s.R)>0 and s.used==0 then call('DEL',s.R) end
end

-- Writes the record of a shared holder and the count of all. If a user lacks the right to a command,
-- a script ends there and keeps what it has written. So a holder is counted before it is in R, and
-- until it is not. Then the count is never too small. `open` corrects one that is too large.
local function count(s,id,record)
  call('HSET',s.W,id,record,'#',num(s.cap)..':'..num(s.used))
end

-- Grants the lock to a claim. Other claims may wait behind it, unless it is alone.
local function grant(s,id,weight,cap,block,lease,alone,note)
  local token=next_token(s)
  s.t=token+block-1
  if weight==WHOLE then
    local mark=block>1 and '+' or alone and ':' or '!'
    call('SET',s.H,id..mark..num(token)..note,'PX',lease)
    s.owner,s.token,s.mark,s.final,s.note=id,token,mark,'',note
  else
    if s.used==0 then s.fresh=true end
    s.used,s.cap=s.used+weight,cap
    count(s,id,string.format('%d:%d:%d:%d:%.0f:%s',weight,cap,block,lease,token,note))
    -- The former holder has released the lock.
    if s.leaves then call('DEL',s.H) s.leaves=nil end
    call('ZADD',s.R,us+lease*1000,id)
    if lease>s.need then s.need=lease end
  end
  return token
end

local function fits(s,weight,cap)
  return not s.owner and s.used+weight<=cap
end

-- Publishes the grant of a claim to its client. Returns false if no subscriber received it and the
-- claim can be skipped. A claim of a multi-lock can't, because the multi-lock could wait here for a
-- later one that waits for it in another queue: its channel begins with an exclamation mark. A client
-- that has no channel finds the grant by polling.
local function tell(wid,inbox,token)
  local strict=string.sub(inbox,1,1)=='!'
  if strict then inbox=string.sub(inbox,2) end
  local say=string.find(inbox,'{',1,true) and 'SPUBLISH' or 'PUBLISH'
  return redis.pcall(say,inbox,wid..' '..num(token)..' '..num(us))~=0 or strict
end

-- Whether a damaged waiter has to leave the queue. Its record shows no deadline, so it stays for the
-- retention after a script first found it, which is the time in the field `?` with its claim.
local function is_over(s,wid,held)
  -- A marker: perhaps a later version reads it.
  if string.find(held,'\1',1,true) then return false end
  local over=tonumber(call('HGET',s.W,'?'..wid))
  if over then return over<=us end
  -- The server may refuse this write if it has no memory. The next script tries again.
  redis.pcall('HSET',s.W,'?'..wid,num(us+ret*1000))
  return false
end

-- Grants the longest prefix of the queue that fits, and notifies the clients. Claims whose lease has ended
-- leave the queue. A claim whose client can't be reached keeps its place and is skipped. A waiter
-- that can't be read keeps its place, and no claim behind it is granted: s.unread is its value and
-- its claim.
-- Returns the token of `me`, if it is granted: the caller gets an answer, and no message.
local function promote(s,me)
  if frozen then
    -- A waiter polls until the guard of its own client is over, and then gets the lock.
    s.waiting=s.flag and call('EXISTS',s.Q)==1
    s.blocked=s.waiting
    return nil
  end
  local mine
  local at,deaf=0,{}
  s.blocked=false
  while s.flag do
    if s.owner then
      s.tail=call('ZRANGE',s.Q,-1,-1,'WITHSCORES')[2]
      s.blocked=s.tail~=nil
      break
    end
    -- Two entries: the next claim, and whether another one waits behind it.
    local e=call('ZRANGE',s.Q,at,at+1,'WITHSCORES')
    local wid=e[1]
    if not wid then break end
    local held=call('HGET',s.W,wid)
    local weight,cap,block,lease,deadline,inbox,note=string.match(held or '',WAITS)
    if not held or weight and deadline+0<=us or not weight and is_over(s,wid,held) then
      call('ZREM',s.Q,wid)
      call('HDEL',s.W,wid,'?'..wid)
    elseif not weight or newer(note) then
      s.blocked,s.unread=true,{held,wid}
      break
    else
      weight,cap,block,lease=weight+0,cap+0,block+0,lease+0
      s.queue_cap=cap
      if not fits(s,weight,cap) then
        s.blocked=true
        break
      end
      if not has_tokens(s,block) then
        s.blocked,s.spent=true,true
        break
      end
      if deaf[inbox] and wid~=me then
        at=at+1
      else
        if weight<WHOLE and s.used==0 then check(s,weight) end
        -- ZREM is allowed without memory. Once a script has written, the server refuses none of its later
        -- writes for want of memory. It may refuse one because the user lacks the right to it. So the
        -- message follows the writes of the grant.
        call('ZREM',s.Q,wid)
        call('HDEL',s.W,wid)
        local t=s.t
        local token=grant(s,wid,weight,cap,block,lease,false,note)
        if wid~=me and inbox~='' and not tell(wid,inbox,token) then
          s.t=t
          if weight==WHOLE then
            call('DEL',s.H)
            s.owner,s.mark=nil,nil
          else
            call('ZREM',s.R,wid)
            s.used,s.dirty=s.used-weight,true
          end
          call('HSET',s.W,wid,held)
          call('ZADD',s.Q,e[2],wid)
          deaf[inbox],s.fresh,at=true,true,at+1
        else
          if wid==me then mine=token end
          if s.owner then
            s.blocked=e[3]~=nil
            break
          end
        end
      end
    end
  end
  s.waiting=s.blocked or at>0
  return mine
end

-- Writes F, the count of shared holders, and lifetimes that outlast all entries.
local function close(s)
  if s.dirty then
    if s.used>0 then call('HSET',s.W,'#',num(s.cap)..':'..num(s.used)) else call('HDEL',s.W,'#') end
  end
  if not (s.waiting or s.used>0) then
    local f=s.past or num(s.t)
    if s.t>0 and f~=s.was then
      call('SET',s.F,f,'PX',ret+s.need)
    elseif s.need>0 and call('PTTL',s.F)<ret+s.need then
      call('PEXPIRE',s.F,ret+s.need)
    end
    return
  end
  local f=(s.past or num(s.t))..'q'
  if s.need==0 and not s.fresh then
    if s.was~=f then call('SET',s.F,f,'KEEPTTL') end
    return
  end
  -- The lifetime of W counts as well, since a renewal extends that of F alone.
  local left,need=math.min(call('PTTL',s.F),call('PTTL',s.W)),s.need+ret
  if left<need then
    -- Longer than needed, so that not every call has to extend it.
    left=need+ret
    s.fresh=true
  end
  if s.fresh then
    call('SET',s.F,f,'PX',left)
    call('PEXPIRE',s.W,left)
    if s.waiting then call('PEXPIRE',s.Q,left) end
    if s.used>0 then call('PEXPIRE',s.R,left) end
  elseif s.was~=f then
    call('SET',s.F,f,'KEEPTTL')
  end
end

-- The time until the first lease of a holder ends, in ms.
local function next_end(s)
  if s.owner then return call('PTTL',s.H)+1 end
  local first=call('ZRANGE',s.R,0,0,'WITHSCORES')[2]
  if not first then return 1 end
  return math.ceil((first-us)/1000)
end

-- The answer for a waiting claim.
local function standing(s,id)
  local before=call('ZRANK',s.Q,id)
  return {2,before+1,before==0 and next_end(s) or 0,us}
end

-- The token of a claim that holds the lock. Its lease is extended. A late request never shortens it,
-- except for the last renewal, which marks the claim: then nothing extends the lease.
local function hold(s,id,lease,last)
  if s.owner==id then
    if s.final=='*' then
      if last then call('PEXPIRE',s.H,lease,'LT') end
    elseif last then
      call('PEXPIRE',s.H,lease)
    else
      call('PEXPIRE',s.H,lease,'GT')
    end
    if last and s.final=='' then
      s.final='*'
      call('SET',s.H,string.gsub(call('GET',s.H),'^(%x+[:!+]%d+)','%1*',1),'KEEPTTL')
    end
    return s.token
  end
  local ends=s.used>0 and call('ZSCORE',s.R,id)
  if not ends then return nil end
  local held=call('HGET',s.W,id) or ''
  local head,token,final,note=string.match(held,'^(%d+:%d+:%d+:%d+:(%d+):)(%*?)(.*)$')
  if not token then foreign(s.W) end
  -- Claims are renewed even if the server has no memory: ZREM is allowed then, and after it no
  -- write is refused.
  call('ZREM',s.Q,'')
  local later=us+lease*1000
  if final=='*' then
    if last and later<ends+0 then call('ZADD',s.R,later,id) end
  elseif last or ends+0<later then
    call('ZADD',s.R,later,id)
  end
  if last and final=='' then call('HSET',s.W,id,head..'*'..note) end
  if lease>s.need then s.need=lease end
  return token+0
end

-- Extends the lease of a waiting claim. Returns nil if it does not wait, false if its lease has ended.
local function stay(s,id,lease)
  if not s.flag or not call('ZSCORE',s.Q,id) then return nil end
  local held=call('HGET',s.W,id)
  local weight,cap,block,kept,deadline,inbox,note=string.match(held or '',WAITS)
  if held and (not weight or newer(note)) then foreign(s.W,held,id) end
  if not held or deadline+0<=us then return false end
  call('ZREM',s.Q,'')
  local later=us+lease*1000
  if later<deadline+0 then later=deadline+0 end
  call('HSET',s.W,id,weight..':'..cap..':'..block..':'..kept..':'..num(later)..':'..inbox..note)
  if lease>s.need then s.need=lease end
  return true
end

-- Removes a waiting claim from the queue. Returns false if it was not there or its lease has ended.
local function leave(s,id)
  if not s.flag or not call('ZSCORE',s.Q,id) then return false end
  local held=call('HGET',s.W,id)
  local deadline,note=string.match(held or '','^%d+:%d+:%d+:%d+:(%d+):[^ ]*(.*)$')
  if held and (not deadline or newer(note)) then foreign(s.W,held,id) end
  call('ZREM',s.Q,id)
  call('HDEL',s.W,id)
  return deadline~=nil and deadline+0>us
end

local function acquire(s,id,lease,weight,cap,block,try,inbox,note)
  local token=hold(s,id,lease)
  if token then
    promote(s)
    close(s)
    return {1,token,us}
  end
  if not has_tokens(s,block) then
    leave(s,id)
    promote(s)
    close(s)
    return {5}
  end
  local queued=stay(s,id,lease)
  if queued==false then leave(s,id) end
  token=promote(s,id)
  local answer
  if token then
    answer={1,token,us}
  elseif s.unread then
    close(s)
    foreign(s.W,unpack(s.unread))
  elseif queued then
    if try then
      leave(s,id)
      promote(s)
      answer={3,us}
    end
  else
    local other=s.owner and WHOLE or s.used>0 and s.cap or s.waiting and s.queue_cap
    if other and other~=cap then
      answer={4,other}
    elseif not s.blocked and fits(s,weight,cap) then
      if weight<WHOLE and s.used==0 then check(s,weight) end
      token=grant(s,id,weight,cap,block,lease,not s.waiting,note)
      answer={1,token,us}
    elseif try then
      answer={3,us}
    else
      if not s.waiting then check(s,weight) end
      if s.waiting then
        s.tail=s.tail or call('ZRANGE',s.Q,-1,-1,'WITHSCORES')[2]
      else
        s.fresh=true
      end
      call('ZADD',s.Q,(s.tail or 0)+1,id)
      local w=string.format('%d:%d:%d:%d:%.0f:%s',weight,cap,block,lease,us+lease*1000,inbox..note)
      call('HSET',s.W,id,w)
      -- From now on the holder's release has to look at the queue: see the short path in release.lua.
      if s.mark==':' then call('SETRANGE',s.H,32,'!') end
      if lease>s.need then s.need=lease end
      answer={2,s.waiting and 2 or 1,s.waiting and 0 or next_end(s),us}
      s.waiting=true
    end
  end
  close(s)
  return answer or standing(s,id)
end
