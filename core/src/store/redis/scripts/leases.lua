-- What stands behind a member: leases with their notes.
--
-- ARGV: leases by plain name. Answer: {now, then for each that exists: name, deadline, note or ""}.
local answer = { int(now) }
for _, lease in ipairs(ARGV) do
  local deadline, in_grace = deadline_of(lease)
  if deadline then
    answer[#answer + 1] = in_grace and grace_name(lease) or lease
    answer[#answer + 1] = int(deadline)
    answer[#answer + 1] = redis.call('HGET', NOTES, lease) or ''
  end
end
return answer
