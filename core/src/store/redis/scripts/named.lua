-- Whose leases are, and whether parts that lie in several keys fit one another.
local function region_in_keys(region)
  return (string.gsub(string.gsub(region, '%%', '%%25'), ':', '%%3a'))
end

-- Region and room of an entry of the index of rooms, and back.
local function roster_of(entry)
  local ends, begins = string.find(entry, '\0\0', 1, true)
  local room = string.gsub(string.sub(entry, 1, ends - 1), '%z\255', '\0')
  return string.sub(entry, begins + 1), room
end

local function entry_of(region, room)
  return string.gsub(room, '%z', '\0\255') .. '\0\0' .. region
end

-- Region as it is in keys, room and user of a lease, and the entry of its roster, or nothing.
local function owner_of(lease)
  local text = try('HGET', OWNERS, lease)
  local is_json, owner = pcall(cjson.decode, text and string.sub(text, 18) or '')
  if not is_json or type(owner) ~= 'table' or not (owner.region and owner.room and owner.user) then return nil end
  return region_in_keys(owner.region), owner.room, owner.user, entry_of(owner.region, owner.room)
end

-- Adds all keys of the rosters that these leases are of to `names`.
local function add_owners(names, leases)
  for _, lease in ipairs(leases) do
    local region, room = owner_of(lease)
    if region then add_roster(names, region, room) end
  end
end

local function record_of(region, room, user)
  return try('HGET', roster_key('roster', region, room), '@' .. user)
end

-- Leases that a stored record names, separated by commas.
local function leases_in(record)
  local _, _, leases = parts_of(record)
  return leases or ''
end

local function is_named(record, lease)
  return record and string.find(leases_in(record), lease, 1, true) ~= nil
end

local TYPES = { roster = 'hash', names = 'zset', ended = 'zset', endings = 'zset' }

-- Whether types, names, entry and first field of a roster are not those of its records. Few looks, whatever its size.
local function is_torn(entry)
  local region, room = roster_of(entry)
  region = region_in_keys(region)
  for kind, type in pairs(TYPES) do
    local found = redis.call('TYPE', roster_key(kind, region, room)).ok
    if found ~= type and found ~= 'none' then return true end
  end
  local hash, names = roster_key('roster', region, room), roster_key('names', region, room)
  local listed, has_entry = redis.call('ZCARD', names), redis.call('ZSCORE', key('rooms'), entry) and true or false
  return redis.call('HLEN', hash) - redis.call('HEXISTS', hash, '#') ~= listed or has_entry ~= (listed > 0)
    or is_headless(read_roster(region, room), region, room)
end
