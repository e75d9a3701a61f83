-- Functions that only other functions of this schema call.
SET LOCAL ROLE tcl_owner;

-- The timeline changes with every promotion and every restore.
CREATE FUNCTION tcl.timeline() RETURNS integer
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
$$;

INSERT INTO tcl.epoch (timeline, since, lossless) VALUES (tcl.timeline(), clock_timestamp(), true);

-- A plain sequence is not enough: after a promotion that lost the tail, numbers are issued again.
CREATE FUNCTION tcl.next_fence() RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
  SELECT (tcl.timeline()::bigint << 40) | nextval('tcl.fence_seq')
$$;

-- Has a failover after this fence lost commits, or has nobody yet said that it did not?
CREATE FUNCTION tcl.lossy_since(p_fence bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT NOT EXISTS (SELECT 1 FROM tcl.epoch WHERE timeline = tcl.timeline())
      OR EXISTS (SELECT 1 FROM tcl.epoch WHERE timeline > (p_fence >> 40) AND NOT lossless)
$$;

-- Which key a caller uses next. Reusing the key of a definite failure replays that failure for ever;
-- changing it while the outcome is unknown causes a second effect.
CREATE FUNCTION tcl.next_key(p_word text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE
    WHEN p_word = 'failed' THEN 'new_key'
    WHEN p_word IN ('succeeded', 'denied', 'cancelled', 'expired', 'conflict') THEN 'never'
    ELSE 'same_key'
  END
$$;

-- Called after every change of state with the row as it is now: history, outbox, side tables.
-- Lock order everywhere: guard row, then active row.
CREATE FUNCTION tcl.note_change(
  g tcl.call_guard, p_from tcl.call_state, p_by text, p_why text,
  p_payload bytea DEFAULT NULL, p_delay interval DEFAULT '0'
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO tcl.call_history (tenant, idempotency_key, from_state, to_state, fence, by, why)
    VALUES (g.tenant, g.idempotency_key, p_from, g.state, g.fence, p_by, p_why);
  IF p_from IN ('held', 'ready', 'in_doubt') AND g.state NOT IN ('held', 'ready', 'in_doubt') THEN
    DELETE FROM tcl.call_parked x
      WHERE x.tenant = g.tenant AND x.idempotency_key = g.idempotency_key;
  END IF;
  IF g.state IN ('claimed', 'executing') THEN
    RETURN;
  END IF;
  IF p_from IN ('claimed', 'executing') THEN
    DELETE FROM tcl.call_active x
      WHERE x.tenant = g.tenant AND x.idempotency_key = g.idempotency_key;
  END IF;
  IF g.state IN ('held', 'ready', 'in_doubt') THEN
    INSERT INTO tcl.call_parked AS x (tenant, idempotency_key, state, tool, since, not_before)
      VALUES (g.tenant, g.idempotency_key, g.state, g.tool, clock_timestamp(), clock_timestamp() + p_delay)
      ON CONFLICT (tenant, idempotency_key) DO UPDATE
        SET state = excluded.state, since = excluded.since, not_before = excluded.not_before;
  END IF;
  INSERT INTO tcl.outbox (tenant, aggregateid, type, payload, fence)
    VALUES (g.tenant, g.idempotency_key, 'toolcall.' || g.state, p_payload, g.fence);
END
$$;

-- A row of the same key with other arguments or another tool: recorded, never executed.
CREATE FUNCTION tcl.note_conflict(g tcl.call_guard, p_hash bytea, p_tool text, p_by text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  times integer;
BEGIN
  INSERT INTO tcl.call_conflict AS x (tenant, idempotency_key, args_hash, tool)
    VALUES (g.tenant, g.idempotency_key, p_hash, p_tool)
    ON CONFLICT (tenant, idempotency_key, args_hash, tool) DO UPDATE SET seen = x.seen + 1
    RETURNING seen INTO times;
  IF times = 1 THEN
    INSERT INTO tcl.call_history (tenant, idempotency_key, from_state, to_state, fence, by, why)
      VALUES (g.tenant, g.idempotency_key, g.state, g.state, g.fence, p_by, 'conflict');
  END IF;
END
$$;

RESET ROLE;
