-- Applies changes of one roster as one revision.
--
-- ARGV: region, room, epoch, random part of an epoch to mint, retention (history ms, bytes, tombstones
-- ms, rosters ms), most tombstones of a roster, entry in the index of rooms, count of changes, then each:
--   user, revision expected,
--   count, then each (session, tombstone expected as "generation ended" or "")   -- of sessions added
--   count, then each (guard, lease)                          -- overdue, token or absent
--   count, then each (lease to grant or "" if it can't be granted here, token end, owner)
--   count, then each lease to revoke
--   count, then each (lease, token end)
--   count, then each (session, tombstone)
--   digest, leases and record, or three times "" to remove the member
--   what history tells
-- Answer: {"epoch", epoch in force}, or {"applied", epoch, revision, now, user, why, user, why, …} with
-- those that were refused.
local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end
local function take_list(width)
  local list = {}
  for i = 1, tonumber(take()) do
    list[i] = {}
    for j = 1, width do list[i][j] = take() end
  end
  return list
end

local region, room, epoch, random = take(), take(), take(), take()
local retention = { history = tonumber(take()), bytes = tonumber(take()), tombstones = tonumber(take()),
  rosters = tonumber(take()) }
local tombstones_max, room_entry = tonumber(take()), take()

local changes, touched = {}, {}
for i = 1, tonumber(take()) do
  local change = { user = take(), expect = take(), expected = take_list(2), guards = take_list(2),
    grants = take_list(3), revokes = take_list(1), token_ends = take_list(2), tombstones = take_list(2),
    digest = take(), leases = take(), record = take(), tells = take() }
  changes[i] = change
  for _, grant in ipairs(change.grants) do
    if grant[1] ~= '' then touched[#touched + 1] = edge_key(string.sub(grant[3], 1, 16)) end
  end
  for _, revoked in ipairs(change.revokes) do add_edges(touched, revoked) end
end
add_roster(touched, region, room)
local forgotten = forgettable(touched, 8)
here(touched)

settle(epoch, random, retention)
if state.epoch ~= epoch then
  save()
  return { 'epoch', state.epoch }
end
begin(room_entry)
forget(retention, 8, forgotten)

local roster_hash, names = roster_key('roster', region, room), roster_key('names', region, room)
local ended, endings = roster_key('ended', region, room), roster_key('endings', region, room)
local roster = read_roster(region, room)

local records = {}
local function is_spoiled()
  if is_headless(roster, region, room) then return true end
  for i, change in ipairs(changes) do
    records[i] = redis.call('HGET', roster_hash, '@' .. change.user)
    local touched = records[i] and parts_of(records[i])
    if records[i] and not (touched and touched <= revision_of(roster)) then return true end
    if not records[i] and redis.call('ZSCORE', names, change.user) then return true end
  end
  return false
end
-- Somebody's hand has been here: all is made whole first, as after a commit that was left half-way.
if is_spoiled() then
  left_open = state.open
  settle(epoch, random, retention)
  save()
  return { 'epoch', state.epoch }
end

local from = roster and roster.revision or number('forgotten', 0)
local before = revision_of(roster)
roster = roster or { revision = before, digest = '0000000000000000', last = 0, emptied = now }
local revision = before + 1
local was_empty = redis.call('EXISTS', names) == 0

local function tombstone_name(user, session)
  return #user .. ':' .. user .. session
end

local function tombstone(user, session)
  local name = tombstone_name(user, session)
  local found = redis.call('ZRANGEBYLEX', ended, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 1)[1]
  return found and string.match(string.sub(found, #name + 2), '^%d+ %d+') or ''
end

local function refusal(change, stored)
  local touched = stored and string.match(stored, '^%d+') or '0'
  if touched ~= change.expect then return 'changed' end
  for _, expected in ipairs(change.expected) do
    if tombstone(change.user, expected[1]) ~= expected[2] then return 'changed' end
  end
  for _, guard in ipairs(change.guards) do
    if not holds(guard[1], guard[2]) then return 'guard' end
  end
  local granted = {}
  for _, grant in ipairs(change.grants) do
    local lease = grant[1]
    if lease == '' or granted[lease] or deadline_of(lease) then return 'lease' end
    granted[lease] = true
  end
  return nil
end

local function bury(user, session, text)
  local name = tombstone_name(user, session)
  forget_tombstone(ended, endings, name)
  redis.call('ZADD', ended, 0, name .. '\0' .. text)
  redis.call('ZADD', endings, now, name)
  if redis.call('ZCARD', endings) > tombstones_max then
    forget_tombstone(ended, endings, redis.call('ZRANGE', endings, 0, 0)[1])
  end
end

local function write(change, stored)
  for _, revoked in ipairs(change.revokes) do remove_lease(revoked[1]) end
  for _, token in ipairs(change.token_ends) do redis.call('ZADD', UNTIL, 'XX', token[2], token[1]) end
  for _, grant in ipairs(change.grants) do
    local lease = grant[1]
    redis.call('ZADD', LEASES, now + ttl_of(lease), lease)
    redis.call('ZADD', UNTIL, grant[2], lease)
    redis.call('HSET', OWNERS, lease, grant[3])
    local edge = edge_key(string.sub(grant[3], 1, 16))
    need_type(edge, 'set')
    redis.call('SADD', edge, lease)
  end
  for _, buried in ipairs(change.tombstones) do bury(change.user, buried[1], buried[2]) end
  if stored then roster.digest = plus(roster.digest, string.match(stored, '^%d+ (%x+)'), -1) end
  if change.record == '' then
    redis.call('HDEL', roster_hash, '@' .. change.user)
    redis.call('ZREM', names, change.user)
  else
    roster.digest = plus(roster.digest, change.digest, 1)
    local value = int(revision) .. ' ' .. change.digest .. ' ' .. change.leases .. ' ' .. change.record
    redis.call('HSET', roster_hash, '@' .. change.user, value)
    redis.call('ZADD', names, 0, change.user)
  end
end

local answer = { 'applied', epoch, int(before), int(now) }
local told, size, seen = {}, 0, {}
for i, change in ipairs(changes) do
  local stored = records[i]
  -- A member has one value at a revision: a second change of it is decided on an old reading.
  local why = refusal(change, stored) or (seen[change.user] and 'changed') or nil
  if why then
    answer[#answer + 1] = change.user
    answer[#answer + 1] = why
  else
    seen[change.user] = true
    write(change, stored)
    told[#told + 1] = 'change'
    told[#told + 1] = change.tells
    size = size + #change.tells + 64
  end
end

if #told > 0 then
  local commits = number('commits', 0) + 1
  local members = redis.call('ZCARD', names)
  local is_empty = members == 0
  if is_empty then roster.emptied = now end
  size = size + 256
  redis.call('XADD', key('history'), int(commits) .. '-0', 'epoch', epoch, 'region', region, 'room', room,
    'from', int(from), 'to', int(revision), 'before', int(roster.last), 'at', int(now), 'digest', roster.digest,
    'members', int(members), 'size', int(size), unpack(told))
  roster.revision, roster.last = revision, commits
  write_roster(region, room, roster)
  set('commits', int(commits))
  set('bytes', int(number('bytes', 0) + size))
  if was_empty and not is_empty then redis.call('ZADD', key('rooms'), 0, room_entry) end
  if is_empty then redis.call('ZREM', key('rooms'), room_entry) end
  set_wake(retention, region, room, roster)
  answer[3] = int(revision)
end
save()
return answer
