-- What a person asks first: how many calls are where. Open calls come from the small tables; the ended
-- ones are counted by one pass over the guard, so gauges leave them out.
SET LOCAL ROLE tcl_owner;

-- Besides the states of calls: `conflict` (same key with other arguments, refused), `outbox` (waits to
-- be published) and `undeclared_timeline` (1 when nobody has said what a promotion lost).
CREATE FUNCTION tcl.stats(p_ended boolean DEFAULT true)
RETURNS TABLE (state text, tool text, effect text, calls bigint, oldest_s double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT g.state::text, g.tool, g.effect::text, count(*),
         extract(epoch FROM clock_timestamp() - min(COALESCE(w.since, g.started_at, g.created_at)))::float8
    FROM (SELECT p.tenant, p.idempotency_key, p.since FROM tcl.call_parked p
          UNION ALL SELECT a.tenant, a.idempotency_key, NULL FROM tcl.call_active a) w
    JOIN tcl.call_guard g USING (tenant, idempotency_key)
    GROUP BY g.state, g.tool, g.effect
  UNION ALL
  SELECT g.state::text, g.tool, g.effect::text, count(*), NULL
    FROM tcl.call_guard g WHERE p_ended AND g.finished_at IS NOT NULL
    GROUP BY g.state, g.tool, g.effect
  UNION ALL
  SELECT 'conflict', g.tool, g.effect::text, sum(c.seen)::bigint,
         extract(epoch FROM clock_timestamp() - min(c.first_seen))::float8
    FROM tcl.call_conflict c JOIN tcl.call_guard g USING (tenant, idempotency_key)
    GROUP BY g.tool, g.effect
  UNION ALL
  SELECT 'outbox', NULL, NULL, count(*),
         extract(epoch FROM clock_timestamp() - min(o.created_at))::float8
    FROM tcl.outbox o
  UNION ALL
  SELECT 'undeclared_timeline', NULL, NULL,
         (NOT EXISTS (SELECT 1 FROM tcl.epoch e WHERE e.timeline = tcl.timeline()))::int::bigint, NULL
$$;

GRANT EXECUTE ON FUNCTION tcl.stats(boolean)
TO tcl_executor, tcl_approver, tcl_operator, tcl_application, tcl_reader, tcl_reconciler;

RESET ROLE;
