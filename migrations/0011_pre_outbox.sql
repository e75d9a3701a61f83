-- What the ledger has to tell goes to Kafka from here: taken in batches, published, marked as done.
SET LOCAL ROLE tcl_owner;

-- The place of a later delivery of the same call; NULL for a change of state.
ALTER TABLE tcl.outbox ADD COLUMN repeat_of text COLLATE "C";

-- Finds the first row of a call, which is the only one that may be published next.
CREATE INDEX outbox_call ON tcl.outbox (tenant, aggregateid, id);

-- Somebody sent the call once more, and waits for an answer behind the first one: tell it again. The
-- same record delivered again asks for nothing, its answer is on its way or there.
CREATE FUNCTION tcl.note_repeat(
  g tcl.call_guard, p_topic text, p_partition integer, p_offset bigint
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_topic IS NULL OR (p_topic, p_partition, p_offset) IS NOT DISTINCT FROM
                        (g.source_topic, g.source_partition, g.source_offset) THEN
    RETURN;
  END IF;
  INSERT INTO tcl.outbox (tenant, aggregateid, type, fence, repeat_of)
    VALUES (g.tenant, g.idempotency_key, 'toolcall.' || g.state, g.fence,
            p_topic || '/' || p_partition || '/' || p_offset);
END
$$;

-- As before, and a delivery that finds an answer, or a call that waits for a person, is told again.
CREATE OR REPLACE FUNCTION tcl.claim(
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
    PERFORM tcl.note_repeat(g, p_topic, p_partition, p_offset);
    verdict := 'replay'; fence := g.fence; retry := tcl.next_key(g.state::text);
    RETURN;
  END IF;
  IF g.state IN ('held', 'in_doubt') THEN
    PERFORM tcl.note_repeat(g, p_topic, p_partition, p_offset);
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

-- The next rows to publish, locked until the transaction ends, so it must stay open until they are
-- done. Of a call only its first row is handed out: ids of one call grow with its commits, because
-- the guard row is locked meanwhile, and so the order of a call holds with any number of relays.
-- At most `p_limit` rows are looked at and about `p_bytes` of bodies handed out, one row at least.
CREATE FUNCTION tcl.outbox_take(p_limit integer, p_bytes bigint)
RETURNS TABLE (
  id bigint, tenant text, idempotency_key text, response_id text, tool text, state text,
  retry text, fence bigint, repeat_of text, body bytea, error_class text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  -- A few rows against tables of any size: the outbox changes too fast for its statistics.
  SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off AS $$
DECLARE
  mine bigint[];
BEGIN
  SELECT array_agg(x.id) INTO mine FROM (
    SELECT o.id FROM tcl.outbox o ORDER BY o.id LIMIT p_limit FOR UPDATE SKIP LOCKED
  ) x;
  -- A new statement, so it sees what another relay has done with the rows before ours.
  RETURN QUERY
    SELECT t.id, t.tenant, t.aggregateid, t.response_id, t.tool, t.state, tcl.next_key(t.state),
           t.fence, t.repeat_of, t.body, t.error_class
      FROM (
        SELECT o.id, o.tenant, o.aggregateid, g.response_id, g.tool,
               substr(o.type, length('toolcall.') + 1) AS state, o.fence, o.repeat_of,
               COALESCE(o.payload, r.body) AS body, r.error_class,
               sum(COALESCE(octet_length(o.payload), octet_length(r.body), 0)::bigint)
                 OVER (ORDER BY o.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM tcl.outbox o
          LEFT JOIN tcl.call_guard g
            ON (g.tenant, g.idempotency_key) = (o.tenant, o.aggregateid)
          LEFT JOIN tcl.call_result r
            ON (r.tenant, r.idempotency_key) = (o.tenant, o.aggregateid)
              AND r.fence = o.fence AND 'toolcall.' || r.outcome = o.type
          WHERE o.id = ANY (mine) AND NOT EXISTS (
            SELECT 1 FROM tcl.outbox e
              WHERE e.tenant = o.tenant AND e.aggregateid = o.aggregateid AND e.id < o.id)
      ) t
      WHERE COALESCE(t.before, 0) < p_bytes ORDER BY t.id;
END
$$;

-- These were published. Answers how many there were.
CREATE FUNCTION tcl.outbox_done(p_ids bigint[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  n integer;
BEGIN
  DELETE FROM tcl.outbox o WHERE o.id = ANY (p_ids);
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n;
END
$$;

-- What waits to be published, with the age of the oldest: for gauges and alerts.
CREATE FUNCTION tcl.outbox_waiting(OUT events bigint, OUT oldest_s double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*), COALESCE(extract(epoch FROM clock_timestamp() - min(o.created_at)), 0)::float8
    FROM tcl.outbox o
$$;

-- As before, and what was never published of a pruned call goes with it: nobody waits for it any more,
-- and a ledger without a relay does not grow for ever.
CREATE OR REPLACE FUNCTION tcl.prune(p_margin interval DEFAULT '7 days', p_limit integer DEFAULT 1000)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  n integer;
  newest timestamptz;
BEGIN
  WITH d AS (
    SELECT tenant, idempotency_key FROM tcl.call_guard
      WHERE finished_at IS NOT NULL AND deadline < clock_timestamp() - p_margin
      ORDER BY deadline LIMIT p_limit FOR UPDATE SKIP LOCKED
  ), r AS (
    DELETE FROM tcl.call_result x USING d
      WHERE (x.tenant, x.idempotency_key) = (d.tenant, d.idempotency_key)
  ), p AS (
    DELETE FROM tcl.call_approval x USING d
      WHERE (x.tenant, x.idempotency_key) = (d.tenant, d.idempotency_key)
  ), c AS (
    DELETE FROM tcl.call_conflict x USING d
      WHERE (x.tenant, x.idempotency_key) = (d.tenant, d.idempotency_key)
  ), h AS (
    DELETE FROM tcl.call_history x USING d
      WHERE (x.tenant, x.idempotency_key) = (d.tenant, d.idempotency_key)
  ), o AS (
    DELETE FROM tcl.outbox x USING d
      WHERE (x.tenant, x.aggregateid) = (d.tenant, d.idempotency_key)
  ), gone AS (
    DELETE FROM tcl.call_guard g USING d
      WHERE (g.tenant, g.idempotency_key) = (d.tenant, d.idempotency_key) RETURNING g.emitted_at
  )
  SELECT count(*), max(emitted_at) INTO n, newest FROM gone;
  -- A record stamped in the future must not close the door on calls of today.
  UPDATE tcl.prune_mark SET
    emitted_until = greatest(emitted_until, least(newest, clock_timestamp() - p_margin))
    WHERE newest IS NOT NULL;
  RETURN n;
END
$$;

RESET ROLE;
