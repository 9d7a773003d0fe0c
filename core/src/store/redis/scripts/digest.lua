-- Digests of rosters: sums mod 2^64 by halves of 32 bits, which a double holds exactly.
local function plus(a, b, sign)
  local low = tonumber(string.sub(a, 9), 16) + sign * tonumber(string.sub(b, 9), 16)
  local carry = math.floor(low / 4294967296)
  local high = tonumber(string.sub(a, 1, 8), 16) + sign * tonumber(string.sub(b, 1, 8), 16) + carry
  return string.format('%08x%08x', high % 4294967296, low % 4294967296)
end

-- The digest of all records that there are: for a roster of which one was lost without a commit.
local function digest_of(region, room)
  local sum, stored = '0000000000000000', redis.call('HGETALL', roster_key('roster', region, room))
  for i = 1, #stored, 2 do
    local _, digest = parts_of(stored[i + 1])
    if digest and string.sub(stored[i], 1, 1) == '@' then sum = plus(sum, digest, 1) end
  end
  return sum
end
