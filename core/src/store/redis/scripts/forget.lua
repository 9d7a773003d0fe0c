-- Forgetting, a little at each commit and turn. `retention` has `history`, `bytes`, `tombstones` and
-- `rosters`, in ms but for `bytes`.
local function entry_fields(entry)
  local fields = {}
  for i = 1, #entry, 2 do fields[entry[i]] = entry[i + 1] end
  return fields
end

local function forget_history(retention, budget)
  local history = key('history')
  local aged = 0
  for _ = 1, budget * 2 do
    local oldest = redis.call('XRANGE', history, '-', '+', 'COUNT', 1)[1]
    if not oldest then return end
    local fields = entry_fields(oldest[2])
    local over = number('bytes', 0) > retention.bytes
    -- What has no time nobody of ours has added.
    local old = aged < budget and (tonumber(fields.at) or 0) <= now - retention.history
    if not over and not old then return end
    redis.call('XDEL', history, oldest[1])
    set('bytes', int(math.max(number('bytes', 0) - (tonumber(fields.size) or 0), 0)))
    set('dropped', int(math.max(number('dropped', 0), tonumber(string.match(oldest[1], '^%d+')))))
    aged = aged + 1
  end
end

local function forget_tombstone(ended, endings, name)
  redis.call('ZREM', endings, name)
  redis.call('ZREMRANGEBYLEX', ended, '[' .. name .. '\0', '(' .. name .. '\1')
end

-- When something of a roster can next be forgotten: tombstones first, then its position.
local function wake_of(retention, region, room, roster)
  local first = redis.call('ZRANGE', roster_key('endings', region, room), 0, 0, 'WITHSCORES')
  if first[2] then return tonumber(first[2]) + retention.tombstones end
  if redis.call('EXISTS', roster_key('names', region, room)) == 1 then return nil end
  return roster.emptied + retention.rosters
end

local function set_wake(retention, region, room, roster)
  local at = wake_of(retention, region, room, roster)
  if at then
    redis.call('ZADD', key('wakes'), at, pair(region, room))
  else
    redis.call('ZREM', key('wakes'), pair(region, room))
  end
end

local function unpair(name)
  return string.match(name, '^([^\255]*)\255(.*)$')
end

-- Answers how many tombstones it has forgotten.
local function forget_roster(retention, budget, name)
  local region, room = unpair(name)
  local roster = read_roster(region, room)
  redis.call('ZREM', key('wakes'), name)
  if not roster then return 0 end
  local ended, endings = roster_key('ended', region, room), roster_key('endings', region, room)
  local old = redis.call('ZRANGEBYSCORE', endings, '-inf', now - retention.tombstones, 'LIMIT', 0, budget)
  for _, tombstone in ipairs(old) do forget_tombstone(ended, endings, tombstone) end
  local bare = redis.call('EXISTS', endings, roster_key('names', region, room)) == 0
  if bare and now - roster.emptied >= retention.rosters then
    redis.call('DEL', roster_key('roster', region, room))
    set('forgotten', int(math.max(number('forgotten', 0), roster.revision)))
  else
    set_wake(retention, region, room, roster)
  end
  return #old
end

-- Rosters of which something can be forgotten, at most `budget`; their keys are added to `names`.
local function forgettable(names, budget)
  local rosters = {}
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', key('wakes'), '-inf', now, 'LIMIT', 0, budget)) do
    if unpair(name) then
      add_roster(names, unpair(name))
      rosters[#rosters + 1] = name
    else
      -- It would stand in front of all others for ever.
      redis.call('ZREM', key('wakes'), name)
    end
  end
  return rosters
end

-- About `budget` of each, so that no call ever has much to forget.
local function forget(retention, budget, rosters)
  forget_history(retention, budget)
  local tombstones = budget
  for _, name in ipairs(rosters) do
    if tombstones <= 0 then return end
    tombstones = tombstones - forget_roster(retention, tombstones, name)
  end
end
