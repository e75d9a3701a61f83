-- A call that waited past its deadline, or whose starts are used up, is told so by the sweep as well,
-- and not only by a claim that may never come because nobody serves its tool any more.

-- Who asks the system behind a tool and settles doubts needs neither prune nor declare_timeline.
DO $roles$
BEGIN
  CREATE ROLE tcl_reconciler NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
  NULL;
END
$roles$;

SET LOCAL ROLE tcl_owner;

GRANT USAGE ON SCHEMA tcl TO tcl_reconciler;
GRANT EXECUTE ON FUNCTION
  tcl.resolve(text, text, bigint, tcl.call_state, text, bytea, text),
  tcl.show_call(text, text),
  tcl.history(text, text),
  tcl.list_calls(tcl.call_state, text, integer),
  tcl.waiting()
TO tcl_reconciler;

-- Where a call goes that nobody owns and that may not be handed out again.
CREATE FUNCTION tcl.swept(g tcl.call_guard, p_late boolean) RETURNS tcl.call_state
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE
    WHEN g.effect IN ('at_most_once', 'reconcilable')
         AND (g.state = 'executing' OR tcl.lossy_since(g.fence))
      OR g.effect = 'idempotent' AND g.begun > 0
         AND (COALESCE(g.redrive_until, '-infinity') < clock_timestamp()
              OR g.begun >= g.max_begun OR p_late)
    THEN 'in_doubt'
    WHEN p_late THEN 'expired'
    WHEN g.begun >= g.max_begun THEN 'failed'
    ELSE 'ready'
  END::tcl.call_state
$$;

-- Leases that ran out on calls nobody redelivers, and deadlines that passed while a call waited.
-- Answers how many calls it moved.
CREATE OR REPLACE FUNCTION tcl.sweep(p_limit integer DEFAULT 100) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  r record;
  g tcl.call_guard;
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
    PERFORM tcl.move_swept(g, false);
    n := n + 1;
  END LOOP;

  FOR g IN
    SELECT c.* FROM tcl.call_parked p JOIN tcl.call_guard c USING (tenant, idempotency_key)
      WHERE p.state IN ('held', 'ready') AND c.state IN ('held', 'ready')
        AND c.deadline <= clock_timestamp()
        -- Nothing is urgent here: what a failover lost may still be said.
        AND (c.effect NOT IN ('at_most_once', 'reconcilable')
             OR EXISTS (SELECT 1 FROM tcl.epoch e WHERE e.timeline = tcl.timeline()))
      ORDER BY p.tenant, p.idempotency_key LIMIT p_limit FOR UPDATE OF c SKIP LOCKED
  LOOP
    PERFORM tcl.move_swept(g, true);
    n := n + 1;
  END LOOP;
  RETURN n;
END
$$;

CREATE FUNCTION tcl.move_swept(g tcl.call_guard, p_late boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  was tcl.call_state := g.state;
  word text := CASE WHEN p_late THEN 'deadline' ELSE 'lease_over' END;
BEGIN
  UPDATE tcl.call_guard c SET
      state = tcl.swept(g, p_late),
      finished_at = CASE WHEN tcl.swept(g, p_late) IN ('expired', 'failed') THEN clock_timestamp() END
    WHERE c.tenant = g.tenant AND c.idempotency_key = g.idempotency_key RETURNING * INTO g;
  IF g.state IN ('expired', 'failed') THEN
    INSERT INTO tcl.call_result (tenant, idempotency_key, fence, outcome, error_class)
      VALUES (g.tenant, g.idempotency_key, g.fence, g.state,
              CASE WHEN p_late THEN 'deadline' ELSE 'attempts_exhausted' END);
  END IF;
  PERFORM tcl.note_change(g, was, 'sweep', word);
END
$$;

RESET ROLE;
