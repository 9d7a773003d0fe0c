-- A few members at one point.
--
-- ARGV: region, room, then users.
-- Answer: {"changed"} if no epoch vouches for the data, or {"read", now, epoch, revision, then for each
-- user: stored record or "", list of tombstones, list of (lease, name, deadline)}.
if not is_settled() then return { 'changed' } end
local region, room = ARGV[1], ARGV[2]
here({ roster_key('roster', region, room), roster_key('ended', region, room) })
local answer = { 'read', int(now), state.epoch, int(revision_of(read_roster(region, room))) }
for i = 3, #ARGV do
  local user = ARGV[i]
  local stored = try('HGET', roster_key('roster', region, room), '@' .. user)
  local prefix = #user .. ':' .. user
  local buried = try('ZRANGEBYLEX', roster_key('ended', region, room), '[' .. prefix, '(' .. prefix .. '\255') or {}
  local tombstones, held, _, _, leases = {}, {}, parts_of(stored or '')
  for j, text in ipairs(buried) do tombstones[j] = string.sub(text, #prefix + 1) end
  for lease in string.gmatch(leases or '', '%x+') do
    local deadline, in_grace = deadline_of(lease)
    if deadline then
      held[#held + 1] = in_grace and grace_name(lease) or lease
      held[#held + 1] = int(deadline)
    end
  end
  answer[#answer + 1] = stored or ''
  answer[#answer + 1] = tombstones
  answer[#answer + 1] = held
end
return answer
