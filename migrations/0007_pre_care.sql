SET LOCAL ROLE tcl_owner;

-- Leases that ran out on calls nobody redelivers, and deadlines that passed while a call waited.
-- Answers how many calls it moved.
CREATE FUNCTION tcl.sweep(p_limit integer DEFAULT 100) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r record;
  g tcl.call_guard;
  was tcl.call_state;
  n integer := 0;
BEGIN
  FOR r IN
    SELECT x.tenant, x.idempotency_key FROM tcl.call_active x
      WHERE x.lease_until < clock_timestamp() ORDER BY x.lease_until LIMIT p_limit
  LOOP
    -- Guard first, as everywhere.
    SELECT * INTO g FROM tcl.call_guard c
      WHERE c.tenant = r.tenant AND c.idempotency_key = r.idempotency_key FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    PERFORM 1 FROM tcl.call_active x
      WHERE x.tenant = r.tenant AND x.idempotency_key = r.idempotency_key
        AND x.lease_until < clock_timestamp() FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    was := g.state;
    UPDATE tcl.call_guard c SET state = CASE
        WHEN g.effect IN ('at_most_once', 'reconcilable')
             AND (g.state = 'executing' OR tcl.lossy_since(g.fence))
          OR g.effect = 'idempotent' AND g.begun > 0
             AND COALESCE(g.redrive_until, '-infinity') < clock_timestamp()
        THEN 'in_doubt' ELSE 'ready' END::tcl.call_state
      WHERE c.tenant = r.tenant AND c.idempotency_key = r.idempotency_key RETURNING * INTO g;
    PERFORM tcl.note_change(g, was, 'sweep', 'lease_over');
    n := n + 1;
  END LOOP;

  -- Waiting calls that nothing was begun for and that may not start any more.
  FOR g IN
    SELECT c.* FROM tcl.call_parked p JOIN tcl.call_guard c USING (tenant, idempotency_key)
      WHERE p.state IN ('held', 'ready') AND c.state IN ('held', 'ready') AND c.begun = 0
        AND c.deadline <= clock_timestamp()
      ORDER BY p.tenant, p.idempotency_key LIMIT p_limit FOR UPDATE OF c SKIP LOCKED
  LOOP
    was := g.state;
    UPDATE tcl.call_guard c SET state = 'expired', finished_at = clock_timestamp()
      WHERE c.tenant = g.tenant AND c.idempotency_key = g.idempotency_key RETURNING * INTO g;
    INSERT INTO tcl.call_result (tenant, idempotency_key, fence, outcome, error_class)
      VALUES (g.tenant, g.idempotency_key, g.fence, 'expired', 'deadline');
    PERFORM tcl.note_change(g, was, 'sweep', 'deadline');
    n := n + 1;
  END LOOP;
  RETURN n;
END
$$;

-- Ready calls that an executor should fetch again from the topic they came from; a call handed out is
-- not handed out again for `p_hold`. A hint only: `claim` decides.
CREATE FUNCTION tcl.redrive(p_topic text, p_tools text[], p_limit integer, p_hold interval)
RETURNS TABLE (source_partition integer, source_offset bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  WITH due AS (
    SELECT p.tenant, p.idempotency_key FROM tcl.call_parked p
      WHERE p.state = 'ready' AND p.not_before <= clock_timestamp() AND p.tool = ANY (p_tools)
      ORDER BY p.not_before LIMIT p_limit FOR UPDATE SKIP LOCKED
  ), later AS (
    UPDATE tcl.call_parked p SET not_before = clock_timestamp() + p_hold
      FROM due WHERE (p.tenant, p.idempotency_key) = (due.tenant, due.idempotency_key)
      RETURNING p.tenant, p.idempotency_key
  )
  SELECT g.source_partition, g.source_offset
    FROM later JOIN tcl.call_guard g USING (tenant, idempotency_key)
    WHERE g.source_topic = p_topic AND g.source_offset IS NOT NULL
$$;

-- One batch of terminal calls whose deadline passed longer than the margin ago; repeat until 0.
-- One statement: a row without its result, or a result without its row, must never be seen.
CREATE FUNCTION tcl.prune(p_margin interval DEFAULT '7 days', p_limit integer DEFAULT 1000)
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

-- Who promoted the server says whether the old primary's last commits are all here. Restoring a backup
-- is a failover that lost commits since the backup. False when this timeline has been declared.
CREATE FUNCTION tcl.declare_timeline(p_lossless boolean, p_since timestamptz DEFAULT clock_timestamp())
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO tcl.epoch (timeline, since, lossless) VALUES (tcl.timeline(), p_since, p_lossless)
    ON CONFLICT (timeline) DO NOTHING;
  RETURN FOUND;
END
$$;

RESET ROLE;
