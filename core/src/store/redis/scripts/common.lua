-- What all scripts of a shard share. KEYS[1] is the shard's hash; every other key of the shard is that
-- name with a suffix, so all of them lie in one slot. Numbers of 64 bits travel as 16 hex digits, whose
-- order as text is their order as numbers; times are whole milliseconds of this server's clock.
local shard = KEYS[1]

local function key(name)
  return shard .. ':' .. name
end

local function int(number)
  return string.format('%.0f', number)
end

local now
do
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local LEASES, UNTIL, OWNERS, NOTES = key('leases'), key('until'), key('owners'), key('notes')
local STEP_MAX, LONGEST_TTL = 1000, 409500

-- What a command answers, or nil if the key is of another type: somebody's hand has been here.
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if not string.find(answer.err, '^WRONGTYPE') then error(answer) end
  return nil
end

local FIELDS = { 'epoch', 'server', 'commits', 'forgotten', 'dropped', 'bytes', 'holder', 'turn', 'started',
  'kept_until', 'swept', 'unwatched', 'gaps', 'smallest_ttl', 'hold', 'hold_cause', 'open' }
local state, changed = {}, {}

-- A number of 64 bits, and what a field may be that is no count.
local HEX = string.rep('%x', 16)
local WORDS = { epoch = '^' .. HEX .. ':' .. HEX .. '$', server = '', holder = '^%x+$',
  gaps = '^[%d:;]*$', hold_cause = '^[a-z_]+$', open = '^%?.*%z%z' }

-- Whether a script of ours can have written that.
local function is_ours(field, value)
  if field == 'open' and (value == '' or value == '?') then return true end
  if WORDS[field] then return string.find(value, WORDS[field]) ~= nil end
  return #value <= 15 and string.find(value, '^%d+$') ~= nil
end

-- All that a shard knows of itself, or nil if some of it is not what we have written: then all of it is as if lost.
local function read_state()
  local stored = try('HMGET', shard, unpack(FIELDS))
  for i, value in ipairs(stored or {}) do
    if value and not is_ours(FIELDS[i], value) then return nil end
  end
  return stored
end

local stored_state = read_state()
for i, value in ipairs(stored_state or {}) do
  state[FIELDS[i]] = value
end

local function set(field, value)
  state[field] = value
  changed[field] = true
end

local function number(field, default)
  return tonumber(state[field] or default)
end

-- What a script before this one has begun and not ended.
local left_open = (state.open or '') ~= '' and state.open or nil

-- Says that something is begun that must not be left half-way, with the entry of its roster in the index of
-- rooms, or "": a call that is refused in the midst of a script undoes nothing of what was before it.
local function begin(entry)
  state.open = '?' .. entry
  redis.call('HSET', shard, 'open', state.open)
end

-- Writes the fields that were set, and that all is done. To be called last.
local function save()
  if (state.open or '') ~= '' then set('open', '') end
  local pairs_, gone = {}, {}
  for _, field in ipairs(FIELDS) do
    if changed[field] and state[field] then
      pairs_[#pairs_ + 1] = field
      pairs_[#pairs_ + 1] = state[field]
    elseif changed[field] then
      gone[#gone + 1] = field
    end
  end
  if #pairs_ > 0 then redis.call('HSET', shard, unpack(pairs_)) end
  if #gone > 0 then redis.call('HDEL', shard, unpack(gone)) end
end

-- Which process answers, and which replication history its data is of.
local server, is_cluster
do
  local info = redis.call('INFO', 'server', 'replication')
  server = (string.match(info, 'run_id:(%x+)') or '') .. '/' .. (string.match(info, 'master_replid:(%x+)') or '')
  is_cluster = string.match(info, 'redis_mode:cluster') ~= nil
end

-- In a Cluster a slot moves key by key. Meanwhile a command on a key that is not here fails in the midst of a
-- script, on the old server, or finds nothing, on the new one. So each script looks at all that it may read
-- or write, in one command, before it writes anything: the server refuses one on several keys that are not
-- all in one place, and the script ends without having done anything.
local function here(names)
  if not is_cluster then return end
  for first = 1, #names, 500 do
    redis.call('EXISTS', shard, unpack(names, first, math.min(first + 499, #names)))
  end
end
here({ LEASES, UNTIL, OWNERS, NOTES, key('history'), key('rooms'), key('wakes') })

-- Whether the epoch vouches for the data.
local function is_settled()
  return state.epoch and state.server == server and not left_open
end

local function is_held(ttl)
  local since = tonumber(state.hold or nil)
  return since ~= nil and now < since + ttl and since <= now + ttl
end

-- Whether sweeps are recent enough to believe a deadline: if not, a hold is due that no turn has set
-- yet, and a command that was long under way must not be faster.
local function sweeps_vouch()
  local ttl = tonumber(state.smallest_ttl or nil)
  if ttl == nil then return true end
  local unwatched = number('unwatched', now)
  return math.max(now - unwatched, 0) * 3 <= ttl and unwatched <= now + STEP_MAX
end

-- Lease ids: ttl in 0.1 s (12 bits), shard (8), grace (1), random (43).
local function is_lease(name)
  return #name == 16 and string.find(name, '^[0-9a-f]+$') ~= nil
end

local function ttl_of(lease)
  return tonumber(string.sub(lease, 1, 3), 16) * 100
end

local function grace_name(lease)
  local digit = tonumber(string.sub(lease, 6, 6), 16)
  return string.sub(lease, 1, 5) .. string.format('%x', digit % 8 + 8) .. string.sub(lease, 7)
end

local function plain_name(lease)
  local digit = tonumber(string.sub(lease, 6, 6), 16)
  return string.sub(lease, 1, 5) .. string.format('%x', digit % 8) .. string.sub(lease, 7)
end

-- Deadline of a lease under either name, and whether it has its grace name.
local function deadline_of(lease)
  local plain = redis.call('ZSCORE', LEASES, lease)
  if plain then return tonumber(plain), false end
  local grace = redis.call('ZSCORE', LEASES, grace_name(lease))
  return grace and tonumber(grace) or nil, grace and true or false
end

local function edge_of(lease)
  local owner = redis.call('HGET', OWNERS, lease)
  return owner and string.sub(owner, 1, 16)
end

-- A note: cause, the deadline that was replaced, the one that was set.
local function note_of(lease)
  local note = redis.call('HGET', NOTES, lease)
  if not note then return nil end
  local cause, replaced, deadline = string.match(note, '^(%S+) (%d+) (%d+)$')
  return cause, tonumber(replaced), tonumber(deadline)
end

local function write_note(lease, cause, replaced, deadline)
  redis.call('HSET', NOTES, lease, cause .. ' ' .. int(replaced) .. ' ' .. int(deadline))
end

-- The set of leases held through an edge.
local function edge_key(edge)
  return key('edge:' .. edge)
end

-- Adds what the removal of leases concerns to `names`.
local function add_edges(names, leases)
  for _, lease in ipairs(leases) do
    local edge = edge_of(lease)
    if edge then names[#names + 1] = edge_key(edge) end
  end
end

-- Removes a lease under both names; unknown is fine.
local function remove_lease(lease)
  redis.call('ZREM', LEASES, lease, grace_name(lease))
  redis.call('ZREM', UNTIL, lease)
  local edge = edge_of(lease)
  if edge then try('SREM', edge_key(edge), lease) end
  redis.call('HDEL', OWNERS, lease)
  redis.call('HDEL', NOTES, lease)
end

-- Whether a guard holds now.
local function holds(guard, lease)
  if guard == 'overdue' then
    local deadline = deadline_of(lease)
    return (deadline == nil or deadline <= now) and not is_held(ttl_of(lease)) and sweeps_vouch()
  elseif guard == 'token' then
    local ends = redis.call('ZSCORE', UNTIL, lease)
    return ends and tonumber(ends) <= now
  end
  return deadline_of(lease) == nil and not is_held(ttl_of(lease)) and sweeps_vouch()
end

-- The name of a roster in keys, and in the indexes of its shard: byte 255 is in no UTF-8.
local function roster_key(kind, region, room)
  return key(kind .. ':' .. region .. ':' .. room)
end

-- Adds all keys of a roster to `names`.
local function add_roster(names, region, room)
  for _, kind in ipairs({ 'roster', 'names', 'ended', 'endings' }) do
    names[#names + 1] = roster_key(kind, region, room)
  end
end

local function pair(first, second)
  return first .. '\255' .. second
end

-- A roster's first field: revision, digest, sequence of its last commit, when it was emptied.
local function read_roster(region, room)
  local found = try('HGET', roster_key('roster', region, room), '#') or ''
  local revision, digest, last, emptied = string.match(found, '^(%d+) (' .. HEX .. ') (%d+) (%d+)$')
  if not revision or #revision > 15 or #last > 15 or #emptied > 15 then return nil end
  return { revision = tonumber(revision), digest = digest, last = tonumber(last), emptied = tonumber(emptied) }
end

local function write_roster(region, room, roster)
  local text = int(roster.revision) .. ' ' .. roster.digest .. ' ' .. int(roster.last) .. ' ' .. int(roster.emptied)
  redis.call('HSET', roster_key('roster', region, room), '#', text)
end

-- Whether a roster is there without its first field, which no script leaves so: nothing vouches for its digest.
local function is_headless(roster, region, room)
  local hash, names = roster_key('roster', region, room), roster_key('names', region, room)
  return not roster and redis.call('EXISTS', hash, names) > 0
end

-- Revision, digest and leases of a stored record, or nothing if it is none.
local function parts_of(stored)
  local revision, digest, leases = string.match(stored, '^(%d+) (' .. HEX .. ') (%S*) ')
  if not revision or #revision > 15 then return nil end
  return tonumber(revision), digest, leases
end

local function revision_of(roster)
  return roster and roster.revision or number('commits', 0)
end
