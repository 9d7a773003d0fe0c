-- Lets no epoch vouch for a roster whose parts do not fit one another, judged at this point: the next turn makes it
-- whole.
--
-- ARGV: entry of the roster in the index of rooms. Answer: {now, "1" if they do not fit}.
local entry = ARGV[1]
local region, room = roster_of(entry)
local touched = {}
add_roster(touched, region_in_keys(region), room)
here(touched)

-- Every record is one, has its name, and digest and position are what the first field says. Costs as much as the roster
-- is long: asked of what was found suspicious only.
local function do_records_fit()
  local in_keys = region_in_keys(region)
  local names, roster = roster_key('names', in_keys, room), read_roster(in_keys, room)
  local stored, sum = redis.call('HGETALL', roster_key('roster', in_keys, room)), '0000000000000000'
  for i = 1, #stored, 2 do
    local revision, digest = parts_of(stored[i + 1])
    if stored[i] ~= '#' then
      local has_name = redis.call('ZSCORE', names, string.sub(stored[i], 2))
      if not digest or revision > roster.revision or not has_name then return false end
      sum = plus(sum, digest, 1)
    end
  end
  return not roster or roster.digest == sum
end

local found = is_settled() and (is_torn(entry) or not do_records_fit())
if found then begin(entry) end
return { int(now), found and '1' or '0' }
