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
  local text = redis.call('HGET', OWNERS, lease)
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
  return redis.call('HGET', roster_key('roster', region, room), '@' .. user)
end

-- Leases that a stored record names, separated by commas.
local function leases_in(record)
  return string.match(record, '^%d+ %x+ (%S*)') or ''
end

local function is_named(record, lease)
  return record and string.find(leases_in(record), lease, 1, true) ~= nil
end

-- Whether names, entry and first field of a roster are not those of its records. Whatever its size, four looks.
local function is_torn(entry)
  local region, room = roster_of(entry)
  region = region_in_keys(region)
  local hash, names = roster_key('roster', region, room), roster_key('names', region, room)
  local has_first, listed = redis.call('HEXISTS', hash, '#'), redis.call('ZCARD', names)
  local has_entry = redis.call('ZSCORE', key('rooms'), entry) and true or false
  return redis.call('HLEN', hash) - has_first ~= listed or has_entry ~= (listed > 0) or (listed > 0 and has_first == 0)
end
