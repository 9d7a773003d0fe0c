-- A page of an audit, both ways: leases that no record names, and records whose lease does not exist; and the
-- rosters on the way whose parts do not fit one another. Reads only. What is held is no finding.
--
-- ARGV: cursor among leases, roster to go on in as in the index of rooms or "", user there to go on after or
-- "", how many leases, members and rosters to look at.
-- Answer: {"changed"}, or {"read", now, ms for which the lease that ran out first is overdue, next cursor, next
-- roster, next user, count of leases found, each, count of rosters found, each, then for each record: region,
-- room, user, lease}.
if not is_settled() then return { 'changed' } end
local portion = tonumber(ARGV[4])

local function is_held_lease(lease)
  return is_held(ttl_of(lease))
end

local looked_at, torn = {}, {}
local function look_whole(entry)
  if looked_at[entry] ~= nil then return end
  looked_at[entry] = is_torn(entry)
  if looked_at[entry] then torn[#torn + 1] = entry end
end

-- A record that is none is nobody's: what is made of its roster is made of the others.
local function need_record(entry, record)
  if record and not parts_of(record) and not looked_at[entry] then
    looked_at[entry] = true
    torn[#torn + 1] = entry
  end
end

-- A page of ZSCAN may be a little longer than asked for, and comes whole from a short set.
local function strays()
  local page = redis.call('ZSCAN', LEASES, ARGV[1], 'COUNT', portion)
  local leases, found, touched = {}, {}, {}
  for i = 1, #page[2], 2 do
    if is_lease(page[2][i]) then leases[#leases + 1] = plain_name(page[2][i]) end
  end
  add_owners(touched, leases)
  here(touched)
  for _, lease in ipairs(leases) do
    local region, room, user, entry = owner_of(lease)
    if region then look_whole(entry) end
    local record = region and record_of(region, room, user)
    if region then need_record(entry, record) end
    if not is_named(record, lease) and not is_held_lease(lease) then found[#found + 1] = lease end
  end
  return page[1], found
end

local function look_at(found, entry, users)
  local region, room = roster_of(entry)
  for _, user in ipairs(users) do
    local record = record_of(region_in_keys(region), room, user)
    need_record(entry, record)
    for lease in string.gmatch(record and leases_in(record) or '', '%x+') do
      if not deadline_of(lease) and not is_held_lease(lease) then
        for _, part in ipairs({ region, room, user, lease }) do found[#found + 1] = part end
      end
    end
  end
end

local function remnants()
  local found, left, after = {}, portion, ARGV[3]
  local start = ARGV[2] == '' and '-' or '[' .. ARGV[2]
  local entries = redis.call('ZRANGEBYLEX', key('rooms'), start, '+', 'LIMIT', 0, portion + 1)
  local touched = {}
  for _, entry in ipairs(entries) do
    local region, room = roster_of(entry)
    add_roster(touched, region_in_keys(region), room)
  end
  here(touched)
  for _, entry in ipairs(entries) do
    if left <= 0 then return entry, '', found end
    look_whole(entry)
    local region, room = roster_of(entry)
    local from = entry == ARGV[2] and after ~= '' and '(' .. after or '-'
    local names = roster_key('names', region_in_keys(region), room)
    local users = try('ZRANGEBYLEX', names, from, '+', 'LIMIT', 0, left) or {}
    look_at(found, entry, users)
    if #users == left then return entry, users[#users], found end
    left = left - #users - 1
  end
  return '', '', found
end

local LOOKED_AT = 16
local function oldest_overdue()
  local first = redis.call('ZRANGE', LEASES, 0, LOOKED_AT - 1, 'WITHSCORES')
  for i = 1, #first, 2 do
    if is_lease(first[i]) and not is_held_lease(first[i]) then return math.max(now - tonumber(first[i + 1]), 0) end
  end
  return 0
end

local cursor, found = strays()
local roster, user, records = remnants()
local answer = { 'read', int(now), int(oldest_overdue()), cursor, roster, user, int(#found) }
for _, lease in ipairs(found) do answer[#answer + 1] = lease end
answer[#answer + 1] = int(#torn)
for _, entry in ipairs(torn) do answer[#answer + 1] = entry end
for _, part in ipairs(records) do answer[#answer + 1] = part end
return answer
