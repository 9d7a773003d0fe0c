-- Renames leases to their grace names and brings their deadlines forward. Never lengthens.
--
-- ARGV: edge, grace in ms, cause to note, then leases by plain name.
-- Answer: {now, how many were renamed now}.
local edge, grace, cause = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local released = 0
here({ edge_key(edge) })
for i = 4, #ARGV do
  local lease = ARGV[i]
  local deadline = redis.call('ZSCORE', LEASES, lease)
  if deadline and try('SISMEMBER', edge_key(edge), lease) == 1 then
    local replaced = tonumber(deadline)
    local by, longer, set_to = note_of(lease)
    if by == 'edge_lost' and set_to == replaced then replaced = longer end
    local brought = math.min(replaced, now + grace)
    write_note(lease, cause, replaced, brought)
    redis.call('ZADD', LEASES, brought, grace_name(lease))
    redis.call('ZREM', LEASES, lease)
    released = released + 1
  end
end
return { int(now), int(released) }
