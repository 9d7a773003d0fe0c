-- Revokes, and forgets what has ended, a portion at a time. KEYS[1] is the set of what is revoked until when, with
-- the number of news, which lies beyond all times, under "#".
--
-- ARGV: most to forget, then each: until, what. Answer: {now}.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local BEYOND = 4503599627370496
need_type(KEYS[1], 'zset')
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, what in ipairs(ended) do redis.call('ZREM', KEYS[1], what) end
local changed = 0
for i = 2, #ARGV, 2 do
  if tonumber(ARGV[i]) > now then
    changed = changed + redis.call('ZADD', KEYS[1], 'GT', 'CH', ARGV[i], ARGV[i + 1])
  end
end
if changed > 0 then
  local news = tonumber(redis.call('ZSCORE', KEYS[1], '#') or BEYOND)
  redis.call('ZADD', KEYS[1], string.format('%.0f', news + changed), '#')
end
return { string.format('%.0f', now) }
