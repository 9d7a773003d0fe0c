-- Epochs and their holds, and making whole again what was left half-way.

-- A shard's hash that nobody of ours has written says nothing, and stands in the way of all that is written there.
if not stored_state then redis.call('DEL', shard) end

local function start_hold(cause)
  set('hold', int(now))
  set('hold_cause', cause)
  set('gaps', '')
  set('unwatched', int(now))
  set('swept', int(math.min(number('swept', now), now)))
end

-- Removes the leases of a roster that no record of it names, and those of nobody: their edges hear that they are
-- unknown, and join again while the hold lasts.
local function disown_unnamed(entry)
  local unnamed, touched, cursor = {}, {}, '0'
  repeat
    local page = redis.call('ZSCAN', LEASES, cursor, 'COUNT', 1000)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local lease = is_lease(page[2][i]) and plain_name(page[2][i])
      local region, room, user, of
      if lease then region, room, user, of = owner_of(lease) end
      local is_of = lease and (not region or of == entry)
      if is_of and not (region and is_named(record_of(region, room, user), lease)) then
        unnamed[#unnamed + 1] = lease
      end
    end
  until cursor == '0'
  add_edges(touched, unnamed)
  here(touched)
  for _, lease in ipairs(unnamed) do remove_lease(lease) end
end

-- Makes names, digest, position and entry of a roster anew of its records: they say what was decided.
local function make_whole(entry, retention)
  local region, room = roster_of(entry)
  region = region_in_keys(region)
  local hash, names = roster_key('roster', region, room), roster_key('names', region, room)
  local touched = {}
  add_roster(touched, region, room)
  here(touched)
  for kind, type in pairs(TYPES) do need_type(roster_key(kind, region, room), type) end
  local stored, listed, revision = redis.call('HGETALL', hash), {}, number('commits', 0)
  for i = 1, #stored, 2 do
    local of_record = parts_of(stored[i + 1])
    if string.sub(stored[i], 1, 1) == '@' and of_record then
      revision = math.max(revision, of_record)
      listed[#listed + 1] = 0
      listed[#listed + 1] = string.sub(stored[i], 2)
    elseif stored[i] ~= '#' then
      redis.call('HDEL', hash, stored[i])
    end
  end
  redis.call('DEL', names)
  for first = 1, #listed, 500 do
    redis.call('ZADD', names, unpack(listed, first, math.min(first + 499, #listed)))
  end
  local before = read_roster(region, room)
  local roster = { revision = math.max(revision, before and before.revision or 0), digest = digest_of(region, room),
    last = 0, emptied = now }
  write_roster(region, room, roster)
  if #listed > 0 then
    redis.call('ZADD', key('rooms'), 0, entry)
  else
    redis.call('ZREM', key('rooms'), entry)
  end
  set_wake(retention, region, room, roster)
  disown_unnamed(entry)
end

-- What a script has left half-way vouches for nothing that a commit keeps in step.
local function clear_up(retention)
  for name, type in pairs({ leases = 'zset', ['until'] = 'zset', owners = 'hash', notes = 'hash', rooms = 'zset',
    wakes = 'zset' }) do
    need_type(key(name), type)
  end
  if #left_open > 1 then make_whole(string.sub(left_open, 2), retention) end
end

-- Mints a new epoch, above the stored and the known one, if the server changed, something was left half-way or
-- the caller knew a higher one, and starts its hold.
local function settle(known, random, retention)
  local stored = state.epoch or ''
  local highest = known > stored and known or stored
  if is_settled() and highest == stored then return false end
  if left_open then clear_up(retention) end
  if left_open or not state.commits then
    -- Its entries do not continue what will be counted from here.
    redis.call('DEL', key('history'))
    set('bytes', '0')
  end
  local minted = now
  if highest ~= '' then
    minted = math.max(minted, tonumber(string.sub(highest, 1, 16), 16) + 1)
  end
  set('epoch', string.format('%016x', minted) .. ':' .. random)
  set('server', server)
  set('commits', state.commits or '0')
  set('dropped', state.commits)
  start_hold('store_changed')
  return true
end

