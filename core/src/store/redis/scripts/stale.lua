-- What is old of a shard of users: forgets last-seen times, and tells the departures that are to be looked
-- at. KEYS[1] begins the keys of the shard; what is written is among the other KEYS.
--
-- ARGV: ms a last-seen time is kept, ms a departure is left alone, at most so many of each.
-- Answer: {now, last-seen times forgotten, in a Cluster which server answers if it is not the one for which all
-- who are there were listed last or else "", then each departure: when, user, roster, when the roster was listed for
-- the user or ""}.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local portion = ARGV[3]

need_type(KEYS[1] .. ':seen', 'zset')
need_type(KEYS[1] .. ':went', 'zset')

local function until_ago(key, ago)
  return redis.call('ZRANGEBYSCORE', key, '-inf', now - tonumber(ago), 'WITHSCORES', 'LIMIT', 0, portion)
end

local forgotten = until_ago(KEYS[1] .. ':seen', ARGV[1])
for i = 1, #forgotten, 2 do redis.call('ZREM', KEYS[1] .. ':seen', forgotten[i]) end
local answer = { string.format('%.0f', now), string.format('%.0f', #forgotten / 2) }

local info = redis.call('INFO', 'server', 'replication')
local server = ''
if string.match(info, 'redis_mode:cluster') then
  server = string.match(info, 'run_id:(%x+)') .. '/' .. string.match(info, 'master_replid:(%x+)')
end
answer[3] = redis.call('HGET', KEYS[1], 'server') == server and '' or server

local went = until_ago(KEYS[1] .. ':went', ARGV[2])
for i = 1, #went, 2 do
  local length, rest = string.match(went[i], '^(%d+):(.*)$')
  local user, roster = string.sub(rest, 1, tonumber(length)), string.sub(rest, tonumber(length) + 1)
  answer[#answer + 1] = went[i + 1]
  answer[#answer + 1] = user
  answer[#answer + 1] = roster
  answer[#answer + 1] = redis.call('ZSCORE', KEYS[1] .. ':user:' .. user, roster) or ''
end
return answer
