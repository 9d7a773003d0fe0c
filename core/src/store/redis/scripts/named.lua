-- Whether records name leases.
local function region_in_keys(region)
  return (string.gsub(string.gsub(region, '%%', '%%25'), ':', '%%3a'))
end

-- Region as it is in keys, room and user of a lease, or nothing.
local function owner_of(lease)
  local text = redis.call('HGET', OWNERS, lease)
  local is_json, owner = pcall(cjson.decode, text and string.sub(text, 18) or '')
  if not is_json or type(owner) ~= 'table' or not (owner.region and owner.room and owner.user) then return nil end
  return region_in_keys(owner.region), owner.room, owner.user
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
