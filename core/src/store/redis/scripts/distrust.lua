-- Lets no epoch vouch for a roster whose parts do not fit one another, judged at this point: the next turn makes it
-- whole.
--
-- ARGV: entry of the roster in the index of rooms. Answer: {now, "1" if they do not fit}.
local entry = ARGV[1]
local region, room = roster_of(entry)
local touched = {}
add_roster(touched, region_in_keys(region), room)
here(touched)
local found = is_settled() and is_torn(entry)
if found then begin(entry) end
return { int(now), found and '1' or '0' }
