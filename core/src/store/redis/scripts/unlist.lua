-- Removes entries of the index by user that were found false, if they were not written since and are old
-- enough; and departures that were looked at. KEYS[1] begins the keys of the shard of users; what is written is
-- among the other KEYS.
--
-- ARGV: least age of an entry in ms, then each: user, roster, when it was listed or "", when the departure was
-- noted or "", "gone" or "there". Answer: {now}.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local horizon = now - tonumber(ARGV[1])
local WENT = KEYS[1] .. ':went'
need_type(WENT, 'zset')
for i = 2, #ARGV, 5 do
  local user, roster, listed, noted, is_gone = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4] == 'gone'
  local rosters = KEYS[1] .. ':user:' .. user
  need_type(rosters, 'zset')
  local written = redis.call('ZSCORE', rosters, roster)
  if is_gone and written and written == listed and tonumber(written) <= horizon then
    redis.call('ZREM', rosters, roster)
    written = nil
  end
  local went = #user .. ':' .. user .. roster
  if noted ~= '' and redis.call('ZSCORE', WENT, went) == noted then
    if is_gone and written then
      -- Listed anew a short while ago: whoever was on his way has come by the next look, or has not.
      redis.call('ZADD', WENT, string.format('%.0f', now), went)
    else
      redis.call('ZREM', WENT, went)
    end
  end
end
return { string.format('%.0f', now) }
