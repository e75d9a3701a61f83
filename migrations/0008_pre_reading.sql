SET LOCAL ROLE tcl_owner;

-- The answer for one call; no row when the key is unknown. Read it from the primary only.
CREATE FUNCTION tcl.fetch_result(p_tenant text, p_key text)
RETURNS TABLE (
  response_id text, tool text, state tcl.call_state, fence bigint, retry text,
  body bytea, body_ref text, body_hash bytea, error_class text
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT g.response_id, g.tool, g.state, g.fence, tcl.next_key(g.state::text),
         r.body, r.body_ref, r.body_hash, r.error_class
    FROM tcl.call_guard g LEFT JOIN tcl.call_result r USING (tenant, idempotency_key)
    WHERE g.tenant = p_tenant AND g.idempotency_key = p_key
$$;

-- Everything about one call but its content.
CREATE FUNCTION tcl.show_call(p_tenant text, p_key text)
RETURNS TABLE (
  response_id text, tool text, effect tcl.effect_class, args_hash bytea, state tcl.call_state,
  fence bigint, claims integer, begun integer, max_begun integer, emitted_at timestamptz,
  deadline timestamptz, redrive_until timestamptz, cancel_requested boolean, decision_id text,
  policy_rev text, source_topic text, source_partition integer, source_offset bigint,
  created_at timestamptz, started_at timestamptz, finished_at timestamptz, owner text,
  lease_until timestamptz, error_class text, result_bytes integer, conflicts integer, retry text
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT g.response_id, g.tool, g.effect, g.args_hash, g.state, g.fence, g.claims, g.begun,
         g.max_begun, g.emitted_at, g.deadline, g.redrive_until, g.cancel_requested, g.decision_id,
         g.policy_rev, g.source_topic, g.source_partition, g.source_offset, g.created_at,
         g.started_at, g.finished_at, a.owner, a.lease_until, r.error_class, octet_length(r.body),
         (SELECT COALESCE(sum(seen), 0)::int FROM tcl.call_conflict x
           WHERE x.tenant = p_tenant AND x.idempotency_key = p_key),
         tcl.next_key(g.state::text)
    FROM tcl.call_guard g
    LEFT JOIN tcl.call_active a USING (tenant, idempotency_key)
    LEFT JOIN tcl.call_result r USING (tenant, idempotency_key)
    WHERE g.tenant = p_tenant AND g.idempotency_key = p_key
$$;

CREATE FUNCTION tcl.history(p_tenant text, p_key text)
RETURNS TABLE (
  at timestamptz, from_state tcl.call_state, to_state tcl.call_state, fence bigint, by text, why text
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT h.at, h.from_state, h.to_state, h.fence, h.by, h.why FROM tcl.call_history h
    WHERE h.tenant = p_tenant AND h.idempotency_key = p_key ORDER BY h.id
$$;

-- Newest first, by the time of the first claim; `since` is when the call came into its state. Waiting
-- and running states are read from small tables; the others read the guard from its newest end.
CREATE FUNCTION tcl.list_calls(
  p_state tcl.call_state DEFAULT NULL, p_tenant text DEFAULT NULL, p_limit integer DEFAULT 100
)
RETURNS TABLE (
  tenant text, idempotency_key text, response_id text, tool text, state tcl.call_state,
  effect tcl.effect_class, fence bigint, created_at timestamptz, since timestamptz, retry text
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_state IN ('held', 'ready', 'in_doubt') THEN
    RETURN QUERY
      SELECT g.tenant, g.idempotency_key, g.response_id, g.tool, g.state, g.effect, g.fence,
             g.created_at, p.since, tcl.next_key(g.state::text)
        FROM tcl.call_parked p JOIN tcl.call_guard g USING (tenant, idempotency_key)
        WHERE p.state = p_state AND (p_tenant IS NULL OR p.tenant = p_tenant)
        ORDER BY g.created_at DESC LIMIT p_limit;
  ELSIF p_state IN ('claimed', 'executing') THEN
    RETURN QUERY
      SELECT g.tenant, g.idempotency_key, g.response_id, g.tool, g.state, g.effect, g.fence,
             g.created_at, COALESCE(g.started_at, g.created_at), tcl.next_key(g.state::text)
        FROM tcl.call_active a JOIN tcl.call_guard g USING (tenant, idempotency_key)
        WHERE g.state = p_state AND (p_tenant IS NULL OR a.tenant = p_tenant)
        ORDER BY g.created_at DESC LIMIT p_limit;
  ELSE
    RETURN QUERY
      SELECT g.tenant, g.idempotency_key, g.response_id, g.tool, g.state, g.effect, g.fence,
             g.created_at, COALESCE(g.finished_at, p.since, g.started_at, g.created_at),
             tcl.next_key(g.state::text)
        FROM tcl.call_guard g LEFT JOIN tcl.call_parked p USING (tenant, idempotency_key)
        WHERE (p_state IS NULL OR g.state = p_state) AND (p_tenant IS NULL OR g.tenant = p_tenant)
        ORDER BY g.created_at DESC LIMIT p_limit;
  END IF;
END
$$;

-- What waits and what runs, with the age of the oldest: for gauges and alerts.
CREATE FUNCTION tcl.waiting()
RETURNS TABLE (state text, calls bigint, oldest_s double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT p.state::text, count(*), extract(epoch FROM clock_timestamp() - min(p.since))::float8
    FROM tcl.call_parked p GROUP BY p.state
  UNION ALL
  SELECT 'owned', count(*), COALESCE(extract(epoch FROM clock_timestamp() - min(g.created_at)), 0)::float8
    FROM tcl.call_active a JOIN tcl.call_guard g USING (tenant, idempotency_key)
  UNION ALL
  SELECT 'undeclared_timeline', count(*), 0::float8
    FROM (SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM tcl.epoch e WHERE e.timeline = tcl.timeline())) u
$$;

RESET ROLE;
