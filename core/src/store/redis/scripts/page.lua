-- A page of a roster by user, or with a count of 0 only what all of it has.
--
-- ARGV: region, room, user to continue after or "", most members.
-- Answer: {"changed"}, {"torn"} if the roster has lost its first field or names, or {"read", now, epoch, revision,
-- digest, members in all, start of the last finished sweep, hold or "", its cause, then each: user, stored record}.
-- One more than asked says that more follow.
if not is_settled() then return { 'changed' } end
local region, room, after, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
here({ roster_key('roster', region, room), roster_key('names', region, room) })
local roster, names = read_roster(region, room), roster_key('names', region, room)
local hash, listed = roster_key('roster', region, room), redis.call('ZCARD', names)
local records = redis.call('HLEN', hash) - (roster and 1 or 0)
if is_headless(roster, region, room) or records > listed then return { 'torn' } end
local answer = { 'read', int(now), state.epoch, int(revision_of(roster)), roster and roster.digest or '0',
  int(listed), state.swept or '', '', '' }
if is_held(LONGEST_TTL) then
  answer[8], answer[9] = state.hold, state.hold_cause
end
if count > 0 then
  local start = after == '' and '-' or '(' .. after
  local users, fields = redis.call('ZRANGEBYLEX', names, start, '+', 'LIMIT', 0, count + 1), {}
  for i, user in ipairs(users) do fields[i] = '@' .. user end
  local records = #fields > 0 and redis.call('HMGET', roster_key('roster', region, room), unpack(fields)) or {}
  for i, user in ipairs(users) do
    answer[#answer + 1] = user
    -- A name without a record, which the adapter skips: somebody's hand has been here.
    answer[#answer + 1] = records[i] or ''
  end
end
return answer
