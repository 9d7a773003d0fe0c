-- Commits of a roster after a revision, found by walking back from its last one.
--
-- ARGV: region, room, epoch, revision, most commits, most steps back.
-- Answer: {"changed"}, {"compacted", "ahead" or "unchanged", epoch, revision}, or {"commits", then entries as in
-- the stream}.
if not is_settled() then return { 'changed' } end
local region, room, epoch, after = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local count, steps = tonumber(ARGV[5]), tonumber(ARGV[6])
here({ roster_key('roster', region, room) })
local roster = read_roster(region, room)
local revision = revision_of(roster)
local compacted = { 'compacted', state.epoch, int(revision) }
local unchanged = { 'unchanged', state.epoch, int(revision) }
if epoch ~= state.epoch then return compacted end
if after > revision then return { 'ahead', state.epoch, int(revision) } end
if not roster then return after < number('forgotten', 0) and compacted or unchanged end
if after == revision then return unchanged end

local history, newest_first, sequence, complete = key('history'), {}, roster.last, false
while not complete do
  local id = int(sequence)
  local entry = sequence > 0 and redis.call('XRANGE', history, id, id)[1]
  if not entry or #newest_first == steps then return compacted end
  local fields = {}
  for i = 1, 12, 2 do fields[entry[2][i]] = entry[2][i + 1] end
  if fields.epoch ~= epoch then return compacted end
  newest_first[#newest_first + 1] = entry[2]
  complete = tonumber(fields.from) <= after
  sequence = tonumber(fields.before)
end
local answer = { 'commits' }
for i = #newest_first, math.max(#newest_first - count + 1, 1), -1 do
  answer[#answer + 1] = newest_first[i]
end
return answer
