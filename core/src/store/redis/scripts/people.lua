-- Who comes and goes, written before the commit that makes it true. KEYS[1] begins the keys of a shard of
-- users; their last-seen times, rosters and the departures to be looked at are named after it, and are the
-- other KEYS, so that in a Cluster all are looked for first.
--
-- ARGV, each: user, roster, "came", "went", or "stays" for one who is there and may not be listed. Answer: {now}.
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
need_type(KEYS[1] .. ':seen', 'zset')
need_type(KEYS[1] .. ':went', 'zset')
for i = 1, #ARGV, 3 do
  local user, roster, what = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  need_type(KEYS[1] .. ':user:' .. user, 'zset')
  if what ~= 'stays' then redis.call('ZADD', KEYS[1] .. ':seen', now, user) end
  if what == 'stays' then
    redis.call('ZADD', KEYS[1] .. ':user:' .. user, 'NX', now, roster)
  elseif what == 'came' then
    redis.call('ZADD', KEYS[1] .. ':user:' .. user, now, roster)
  else
    redis.call('ZADD', KEYS[1] .. ':went', now, #user .. ':' .. user .. roster)
  end
end
return { now }
