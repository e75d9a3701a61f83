SET LOCAL ROLE tcl_owner;

-- Ask for the right to execute one call. Verdicts:
--   claimed   the caller owns it under `fence` until the lease ends
--   replay    terminal: read the stored result, run nothing
--   busy      another owner's lease is live
--   conflict  same key, other arguments or other tool
--   held      a person must decide          in_doubt  the effect may have happened
--   expired   past its deadline, and no row is written
--   paused    new primary, and nobody has said what the old one lost
--   retry     the row vanished between two statements: ask again
-- `effect` is the class stored with the row, which the owner has to follow.
-- READ COMMITTED is needed: the second statement must see the transaction that beat the first one.
CREATE FUNCTION tcl.claim(
  p_tenant text, p_request text, p_response text, p_call text, p_tool text,
  p_effect tcl.effect_class, p_hash bytea, p_owner text, p_lease interval,
  p_emitted timestamptz, p_deadline timestamptz, p_max integer DEFAULT 1,
  p_topic text DEFAULT NULL, p_partition integer DEFAULT NULL, p_offset bigint DEFAULT NULL,
  OUT verdict text, OUT fence bigint, OUT state tcl.call_state, OUT effect tcl.effect_class,
  OUT retry text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g tcl.call_guard;
  a tcl.call_active;
  k text := p_request || ':' || p_call;
  t timestamptz := clock_timestamp();
  n bigint;
  unsure boolean := p_effect IN ('at_most_once', 'reconcilable');
  was tcl.call_state;
  word text;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'tcl.claim needs READ COMMITTED' USING ERRCODE = 'TC002';
  END IF;
  effect := p_effect;
  IF unsure AND NOT EXISTS (SELECT 1 FROM tcl.epoch e WHERE e.timeline = tcl.timeline()) THEN
    verdict := 'paused'; retry := tcl.next_key(verdict);
    RETURN;
  END IF;

  IF p_deadline > t AND p_emitted > (SELECT m.emitted_until FROM tcl.prune_mark m) THEN
    n := tcl.next_fence();
    INSERT INTO tcl.call_guard AS c (
      tenant, request_id, response_id, call_id, idempotency_key, tool, effect, args_hash, state,
      fence, claims, max_begun, emitted_at, deadline, source_topic, source_partition, source_offset
    ) SELECT
      p_tenant, p_request, p_response, p_call, k, p_tool, p_effect, p_hash,
      CASE WHEN unsure AND EXISTS (
        SELECT 1 FROM tcl.epoch e WHERE NOT e.lossless AND p_emitted < e.since
      ) THEN 'in_doubt' ELSE 'claimed' END::tcl.call_state,
      n, 1, p_max, p_emitted, p_deadline, p_topic, p_partition, p_offset
    ON CONFLICT (tenant, idempotency_key) DO NOTHING
    RETURNING * INTO g;
    IF FOUND THEN
      IF g.state = 'claimed' THEN
        INSERT INTO tcl.call_active (tenant, idempotency_key, fence, owner, lease_until)
          VALUES (p_tenant, k, n, p_owner, t + p_lease);
      END IF;
      PERFORM tcl.note_change(g, NULL, p_owner,
                              CASE g.state WHEN 'in_doubt' THEN 'emitted_before_lossy_failover' END);
      state := g.state; verdict := g.state::text; fence := n; retry := tcl.next_key(verdict);
      RETURN;
    END IF;
  END IF;

  -- A new statement, so it sees the row that won.
  SELECT * INTO g FROM tcl.call_guard c
    WHERE c.tenant = p_tenant AND c.idempotency_key = k FOR UPDATE;
  IF NOT FOUND THEN
    verdict := CASE
      WHEN p_deadline > t AND p_emitted > (SELECT m.emitted_until FROM tcl.prune_mark m) THEN 'retry'
      ELSE 'expired' END;
    retry := tcl.next_key(verdict);
    RETURN;
  END IF;

  t := clock_timestamp(); state := g.state; was := g.state; effect := g.effect;
  IF g.args_hash <> p_hash OR g.tool <> p_tool THEN
    PERFORM tcl.note_conflict(g, p_hash, p_tool, p_owner);
    verdict := 'conflict'; retry := tcl.next_key(verdict);
    RETURN;
  END IF;
  IF g.finished_at IS NOT NULL THEN
    verdict := 'replay'; fence := g.fence; retry := tcl.next_key(g.state::text);
    RETURN;
  END IF;
  IF g.state IN ('held', 'in_doubt') THEN
    verdict := g.state::text; fence := g.fence; retry := tcl.next_key(verdict);
    RETURN;
  END IF;
  SELECT * INTO a FROM tcl.call_active x
    WHERE x.tenant = p_tenant AND x.idempotency_key = k FOR UPDATE;
  IF FOUND AND a.lease_until > t THEN
    verdict := 'busy'; retry := tcl.next_key(verdict);
    RETURN;
  END IF;

  -- Nobody owns it. May the lost owner have caused the effect?
  IF g.effect IN ('at_most_once', 'reconcilable')
       AND (g.state = 'executing' OR tcl.lossy_since(g.fence))
     OR g.effect = 'idempotent' AND g.begun > 0
       AND (COALESCE(g.redrive_until, '-infinity') < t + p_lease
            OR least(g.deadline, p_deadline) <= t OR g.begun >= g.max_begun) THEN
    UPDATE tcl.call_guard c SET state = 'in_doubt'
      WHERE c.tenant = p_tenant AND c.idempotency_key = k RETURNING * INTO g;
    PERFORM tcl.note_change(g, was, p_owner, 'owner_lost');
    state := 'in_doubt'; verdict := 'in_doubt'; fence := g.fence; retry := tcl.next_key(verdict);
    RETURN;
  END IF;
  IF least(g.deadline, p_deadline) <= t OR g.begun >= g.max_begun OR g.claims >= g.max_begun + 10 THEN
    state := CASE WHEN least(g.deadline, p_deadline) <= t THEN 'expired' ELSE 'failed' END;
    word := CASE state WHEN 'failed' THEN 'attempts_exhausted' ELSE 'deadline' END;
    UPDATE tcl.call_guard c SET state = claim.state, finished_at = t
      WHERE c.tenant = p_tenant AND c.idempotency_key = k RETURNING * INTO g;
    INSERT INTO tcl.call_result (tenant, idempotency_key, fence, outcome, error_class)
      VALUES (p_tenant, k, g.fence, g.state, word);
    PERFORM tcl.note_change(g, was, p_owner, word);
    verdict := 'replay'; fence := g.fence; retry := tcl.next_key(g.state::text);
    RETURN;
  END IF;

  n := tcl.next_fence();
  UPDATE tcl.call_guard c SET state = 'claimed', fence = n, claims = c.claims + 1
    WHERE c.tenant = p_tenant AND c.idempotency_key = k RETURNING * INTO g;
  INSERT INTO tcl.call_active AS x (tenant, idempotency_key, fence, owner, lease_until)
    VALUES (p_tenant, k, n, p_owner, t + p_lease)
    ON CONFLICT (tenant, idempotency_key) DO UPDATE
      SET fence = excluded.fence, owner = excluded.owner, lease_until = excluded.lease_until;
  PERFORM tcl.note_change(g, was, p_owner, CASE WHEN was = 'ready' THEN NULL ELSE 'lease_over' END);
  fence := n; state := 'claimed'; verdict := 'claimed'; retry := tcl.next_key(verdict);
END
$$;

-- After a lost connection: did my claim commit? `p_owner` must be unique to that one question, so that
-- two deliveries inside one process can never both be told the same fence.
CREATE FUNCTION tcl.claim_of(p_tenant text, p_key text, p_owner text)
RETURNS TABLE (fence bigint, effect tcl.effect_class)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT g.fence, g.effect FROM tcl.call_guard g
    JOIN tcl.call_active a USING (tenant, idempotency_key)
    WHERE g.tenant = p_tenant AND g.idempotency_key = p_key AND g.state = 'claimed'
      AND a.owner = p_owner AND a.fence = g.fence AND a.lease_until > clock_timestamp()
$$;

RESET ROLE;
