-- The sweep's turn of a shard: am I it, is there a hold, what is due?
--
-- ARGV: holder, turn it has finished or "", ms a turn is kept, smallest ttl in ms, ms a takeover may take,
-- "1" if the caller saw the clock step, highest epoch it knows or "", random part of an epoch to mint,
-- most leases to answer, retention (history ms, bytes, tombstones ms, rosters ms).
-- Answer: {mine, turn, now, epoch, hold or "", cause, "1" if this turn set it, start of the last finished
-- sweep, last commit that history has dropped, then for each lease that is due: name, "token" or "deadline", deadline, note or "", owner}.
local holder, finished = ARGV[1], ARGV[2]
local kept, smallest_ttl, takeover = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local stepped, known, random, portion = ARGV[6] == '1', ARGV[7], ARGV[8], tonumber(ARGV[9])
local retention = { history = tonumber(ARGV[10]), bytes = tonumber(ARGV[11]), tombstones = tonumber(ARGV[12]),
  rosters = tonumber(ARGV[13]) }

-- Gaps beyond a takeover within the last ttl, as "ended:length;…".
local function gaps()
  local list, sum = {}, 0
  for ended, length in string.gmatch(state.gaps or '', '(%d+):(%d+);') do
    if tonumber(ended) + smallest_ttl > now then
      list[#list + 1] = ended .. ':' .. length .. ';'
      sum = sum + tonumber(length)
    end
  end
  return table.concat(list), sum
end

local function finish()
  local started = number('started', now)
  local gap = math.max(started - number('unwatched', started), 0)
  if gap > takeover then set('gaps', (state.gaps or '') .. int(started) .. ':' .. int(gap) .. ';') end
  set('swept', int(started))
  set('unwatched', int(started))
end

-- Whether a hold starts at this turn; a new epoch has started its own.
local function judge()
  if stepped then return 'clock_step' end
  local list, added = gaps()
  if list ~= (state.gaps or '') then set('gaps', list) end
  local looked = number('unwatched', 0)
  if is_held(LONGEST_TTL) then looked = math.max(looked, tonumber(state.hold)) end
  if looked > now + STEP_MAX then return 'clock_step' end
  local gap = math.max(now - looked, 0)
  if gap > takeover then gap = gap + added end
  return gap * 3 > smallest_ttl and 'sweep_gap' or nil
end

-- Also the first that is written: it is refused for want of memory as a renewal is. A server without room lets a
-- script that removes something first go on, and would look swept while nobody can raise a deadline.
begin(string.sub(left_open or '?', 2))

local is_changed = settle(known, random, retention)
if not is_changed and finished ~= '' and finished == state.turn and holder == state.holder then finish() end
local cause = not is_changed and judge() or nil
if cause then start_hold(cause) end
if state.smallest_ttl ~= ARGV[4] then set('smallest_ttl', ARGV[4]) end

-- A turn kept for longer than anybody asks for was given before the clock stepped back.
local kept_until = number('kept_until', 0)
local mine = state.holder == holder or now >= kept_until or kept_until > now + kept
if mine then
  set('holder', holder)
  set('turn', int(number('turn', 0) + 1))
  set('started', int(now))
  set('kept_until', int(now + kept))
end

local CLAMPED_UNHELD, FORGET_PER_TURN = 16, 100

-- Brings back deadlines further ahead than now + their own ttl, the furthest first: the clock stepped
-- back since they were set. Such a step starts a hold, so that otherwise a look at a few is enough: with
-- several ttls the longer ones are right to stand there.
local function clamp()
  local from, most = now + smallest_ttl + 1, is_held(LONGEST_TTL) and portion or CLAMPED_UNHELD
  local ahead = redis.call('ZRANGE', LEASES, '+inf', from, 'BYSCORE', 'REV', 'LIMIT', 0, most, 'WITHSCORES')
  for i = 1, #ahead, 2 do
    local lease, limit = ahead[i], is_lease(ahead[i]) and now + ttl_of(ahead[i])
    if not limit then
      redis.call('ZREM', LEASES, lease)
    elseif tonumber(ahead[i + 1]) > limit then
      redis.call('ZADD', LEASES, limit, lease)
      local plain = plain_name(lease)
      local by, replaced, deadline = note_of(plain)
      if by then write_note(plain, by, math.min(replaced, limit), math.min(deadline, limit)) end
    end
  end
end

local function due()
  local found, seen = {}, {}
  local tokens = redis.call('ZRANGEBYSCORE', UNTIL, '-inf', now, 'WITHSCORES', 'LIMIT', 0, portion)
  for i = 1, #tokens, 2 do
    found[#found + 1] = { at = tonumber(tokens[i + 1]), clock = 'token', lease = tokens[i] }
  end
  -- Held leases of longer ttls may stand in front of those that are not: look past them, not for ever.
  local skipped, limit = 0, portion
  while not is_held(smallest_ttl) and skipped < portion * 10 do
    local leases = redis.call('ZRANGEBYSCORE', LEASES, '-inf', now, 'WITHSCORES', 'LIMIT', skipped, portion)
    for i = 1, #leases, 2 do
      if not is_lease(leases[i]) then
        -- What is no lease would stand in the way of all that are due.
        redis.call('ZREM', LEASES, leases[i])
      elseif limit > 0 and not is_held(ttl_of(leases[i])) then
        found[#found + 1] = { at = tonumber(leases[i + 1]), clock = 'deadline', lease = leases[i] }
        limit = limit - 1
      end
    end
    skipped = skipped + portion
    if #leases < portion * 2 or limit == 0 then break end
  end
  -- Of one millisecond the token counts: a lease that ends with its token ends for that.
  table.sort(found, function(a, b)
    if a.at ~= b.at then return a.at < b.at end
    if a.clock ~= b.clock then return a.clock == 'token' end
    return a.lease < b.lease
  end)
  local list = {}
  for _, lease in ipairs(found) do
    local plain = plain_name(lease.lease)
    if #list < portion and not seen[plain] then
      seen[plain] = true
      list[#list + 1] = lease
    end
  end
  return list
end

local answer = { mine and '1' or '0', state.turn or '0', int(now), state.epoch, '', '',
  (is_changed or cause) and '1' or '0', state.swept or int(now), state.dropped or '0' }
if is_held(LONGEST_TTL) then
  answer[5], answer[6] = state.hold, state.hold_cause
end
if mine then
  local touched, nobodys = {}, {}
  local rosters = forgettable(touched, FORGET_PER_TURN)
  for _, lease in ipairs(due()) do
    local plain = plain_name(lease.lease)
    local owner = redis.call('HGET', OWNERS, plain)
    local deadline, in_grace = deadline_of(plain)
    if owner and deadline then
      answer[#answer + 1] = in_grace and grace_name(plain) or plain
      answer[#answer + 1] = lease.clock
      answer[#answer + 1] = int(deadline)
      answer[#answer + 1] = redis.call('HGET', NOTES, plain) or ''
      answer[#answer + 1] = owner
    else
      nobodys[#nobodys + 1] = plain
    end
  end
  add_edges(touched, nobodys)
  here(touched)
  forget(retention, FORGET_PER_TURN, rosters)
  clamp()
  -- Half of a lease is nobody's: it names no member whom its end could concern.
  for _, lease in ipairs(nobodys) do remove_lease(lease) end
end
save()
return answer
