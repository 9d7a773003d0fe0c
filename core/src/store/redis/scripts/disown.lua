-- Removes leases, under either name, that no record names. In a hold nothing is removed. A record that was lost
-- without a commit is more than a lease too many: its roster is made whole by the next turn, in a hold, or whoever
-- watches would see everybody gone whose record is lost.
--
-- ARGV: leases by plain name. Answer: {now, how many were removed}.
local removed, touched = 0, {}
add_edges(touched, ARGV)
add_owners(touched, ARGV)
here(touched)
for _, lease in ipairs(ARGV) do
  local region, room, user, entry = owner_of(lease)
  local record = region and record_of(region, room, user)
  if deadline_of(lease) and is_settled() and not is_held(ttl_of(lease)) and not is_named(record, lease) then
    if region and not record and try('ZSCORE', roster_key('names', region, room), user) then
      begin(entry)
      break
    end
    remove_lease(lease)
    removed = removed + 1
  end
end
return { int(now), int(removed) }
