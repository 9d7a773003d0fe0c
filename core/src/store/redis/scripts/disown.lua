-- Removes leases, under either name, that no record names. In a hold nothing is removed.
--
-- ARGV: leases by plain name. Answer: {now, how many were removed}.
local removed, touched = 0, {}
add_edges(touched, ARGV)
add_owners(touched, ARGV)
here(touched)
for _, lease in ipairs(ARGV) do
  local region, room, user = owner_of(lease)
  local record = region and record_of(region, room, user)
  if deadline_of(lease) and is_settled() and not is_held(ttl_of(lease)) and not is_named(record, lease) then
    remove_lease(lease)
    removed = removed + 1
    -- Its record was lost without a commit: count and digest are those of the members again.
    if region and not record and redis.call('ZREM', roster_key('names', region, room), user) == 1 then
      local roster = read_roster(region, room)
      if roster then
        roster.digest = digest_of(region, room)
        write_roster(region, room, roster)
      end
    end
  end
end
return { int(now), int(removed) }
