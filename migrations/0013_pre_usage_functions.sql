-- Recording, totals, and what does not add up.
SET LOCAL ROLE tcl_owner;

-- The one charge of a call that succeeded: the cost that its tool reported (component `cost`, the unit
-- is the currency), else the tool's price, else nothing that anybody knows.
CREATE FUNCTION tcl.note_charge(g tcl.call_guard) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  cost record;
BEGIN
  SELECT u.quantity AS amount, u.unit AS currency, 'reported' AS origin, NULL AS revision INTO cost
    FROM tcl.call_usage u
    WHERE u.tenant = g.tenant AND u.idempotency_key = g.idempotency_key AND u.fence = g.fence
      AND u.component = 'cost' AND u.origin = 'reported'
      -- A number that no charge can be must not keep a call from ending.
      AND u.quantity >= 0 AND u.quantity < 'Infinity';
  IF NOT FOUND THEN
    SELECT p.amount, p.currency, 'estimated' AS origin, p.revision INTO cost FROM tcl.tool_price p
      WHERE p.tool = g.tool AND p.since <= g.finished_at ORDER BY p.since DESC LIMIT 1;
  END IF;
  INSERT INTO tcl.charge (
    tenant, idempotency_key, response_id, tool, fence, amount, currency, origin, price_revision
  ) VALUES (
    g.tenant, g.idempotency_key, g.response_id, g.tool, g.fence, cost.amount, cost.currency,
    COALESCE(cost.origin, 'absent'), cost.revision
  ) ON CONFLICT (tenant, idempotency_key) DO NOTHING;
END
$$;

-- As before, and a success is charged in the same transaction.
CREATE OR REPLACE FUNCTION tcl.note_change(
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
  IF g.state = 'succeeded' THEN
    PERFORM tcl.note_charge(g);
  END IF;
  INSERT INTO tcl.outbox (tenant, aggregateid, type, payload, fence)
    VALUES (g.tenant, g.idempotency_key, 'toolcall.' || g.state, p_payload, g.fence);
END
$$;

-- Write down one report. Answers its cause, or `repeat` when this very report is there already. An
-- absent counter says nothing, so it takes nothing away that was known.
CREATE FUNCTION tcl.record_usage(
  p_tenant text, p_request text, p_response text, p_dialect text, p_model text,
  p_input bigint, p_output bigint, p_total bigint, p_cached bigint, p_reasoning bigint,
  p_provider jsonb, p_at timestamptz, p_topic text, p_partition integer, p_offset bigint
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  old tcl.usage_fact;
  now_known tcl.usage_fact;
  mark bytea := sha256(convert_to(jsonb_build_array(
    p_dialect, p_model, p_input, p_output, p_total, p_cached, p_reasoning, p_provider)::text, 'UTF8'));
  word text;
BEGIN
  LOOP
    PERFORM 1 FROM tcl.usage_fact f
      WHERE f.tenant = p_tenant AND f.request_id = p_request AND f.response_id = p_response
        AND f.digest = mark;
    IF FOUND THEN
      RETURN 'repeat';
    END IF;
    SELECT * INTO old FROM tcl.usage_fact f
      WHERE f.tenant = p_tenant AND f.request_id = p_request AND f.response_id = p_response
      ORDER BY f.revision DESC LIMIT 1;
    now_known := old;
    now_known.dialect := p_dialect;
    now_known.model := COALESCE(p_model, old.model);
    now_known.input_tokens := COALESCE(p_input, old.input_tokens);
    now_known.output_tokens := COALESCE(p_output, old.output_tokens);
    now_known.total_tokens := COALESCE(p_total, old.total_tokens);
    now_known.cached_input_tokens := COALESCE(p_cached, old.cached_input_tokens);
    now_known.reasoning_tokens := COALESCE(p_reasoning, old.reasoning_tokens);
    now_known.provider := COALESCE(old.provider, '{}') || p_provider;
    word := CASE
      WHEN old.tenant IS NULL THEN 'first'
      WHEN now_known IS NOT DISTINCT FROM old THEN 'nothing_new'
      WHEN now_known.dialect = old.dialect
        AND COALESCE(old.model = now_known.model, true)
        AND COALESCE(old.input_tokens = now_known.input_tokens, true)
        AND COALESCE(old.output_tokens = now_known.output_tokens, true)
        AND COALESCE(old.total_tokens = now_known.total_tokens, true)
        AND COALESCE(old.cached_input_tokens = now_known.cached_input_tokens, true)
        AND COALESCE(old.reasoning_tokens = now_known.reasoning_tokens, true)
        AND now_known.provider @> old.provider THEN 'late'
      ELSE 'corrected' END;
    INSERT INTO tcl.usage_fact (
      tenant, request_id, response_id, revision, cause, digest, dialect, model, input_tokens,
      output_tokens, total_tokens, cached_input_tokens, reasoning_tokens, provider, first_at,
      reported_at, source_topic, source_partition, source_offset
    ) VALUES (
      p_tenant, p_request, p_response, COALESCE(old.revision + 1, 0), word, mark, now_known.dialect,
      now_known.model, now_known.input_tokens, now_known.output_tokens, now_known.total_tokens,
      now_known.cached_input_tokens, now_known.reasoning_tokens, now_known.provider,
      COALESCE(old.first_at, p_at), p_at, p_topic, p_partition, p_offset
    ) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN word;
    END IF;
    -- Another recorder was faster: look again.
  END LOOP;
END
$$;

-- A new price for a call of a tool, from now on.
CREATE FUNCTION tcl.set_price(p_tool text, p_amount numeric, p_currency text, p_revision text)
RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO tcl.tool_price (tool, since, amount, currency, revision)
    VALUES (p_tool, clock_timestamp(), p_amount, p_currency, p_revision)
$$;

-- Sums over the newest revision of each response, by any of day, tenant, model; the days are UTC. A sum
-- is NULL when no response reported the counter; `no_input` and `no_output` count those that did not.
CREATE FUNCTION tcl.usage_totals(
  p_by text[], p_from timestamptz, p_to timestamptz, p_tenant text
)
RETURNS TABLE (
  day date, tenant text, model text, responses bigint, corrected bigint, input_tokens numeric,
  output_tokens numeric, total_tokens numeric, cached_input_tokens numeric,
  reasoning_tokens numeric, no_input bigint, no_output bigint
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN 'day' = ANY (p_by) THEN (f.first_at AT TIME ZONE 'UTC')::date END,
         CASE WHEN 'tenant' = ANY (p_by) THEN f.tenant END,
         CASE WHEN 'model' = ANY (p_by) THEN f.model END,
         count(*),
         count(*) FILTER (WHERE EXISTS (
           SELECT 1 FROM tcl.usage_fact c
             WHERE c.tenant = f.tenant AND c.request_id = f.request_id
               AND c.response_id = f.response_id AND c.cause = 'corrected')),
         sum(f.input_tokens), sum(f.output_tokens), sum(f.total_tokens),
         sum(f.cached_input_tokens), sum(f.reasoning_tokens),
         count(*) FILTER (WHERE f.input_tokens IS NULL),
         count(*) FILTER (WHERE f.output_tokens IS NULL)
    FROM tcl.usage_fact f
    WHERE (p_from IS NULL OR f.first_at >= p_from) AND (p_to IS NULL OR f.first_at < p_to)
      AND (p_tenant IS NULL OR f.tenant = p_tenant)
      AND NOT EXISTS (
        SELECT 1 FROM tcl.usage_fact n
          WHERE n.tenant = f.tenant AND n.request_id = f.request_id
            AND n.response_id = f.response_id AND n.revision > f.revision)
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
$$;

-- Sums over the charges, by any of day, tenant, tool; currencies are never added. `unpriced` counts the
-- calls that have no amount.
CREATE FUNCTION tcl.charge_totals(
  p_by text[], p_from timestamptz, p_to timestamptz, p_tenant text
)
RETURNS TABLE (
  day date, tenant text, tool text, currency text, calls bigint, amount numeric, unpriced bigint
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN 'day' = ANY (p_by) THEN (c.charged_at AT TIME ZONE 'UTC')::date END,
         CASE WHEN 'tenant' = ANY (p_by) THEN c.tenant END,
         CASE WHEN 'tool' = ANY (p_by) THEN c.tool END,
         c.currency, count(*), sum(c.amount), count(*) FILTER (WHERE c.amount IS NULL)
    FROM tcl.charge c
    WHERE (p_from IS NULL OR c.charged_at >= p_from) AND (p_to IS NULL OR c.charged_at < p_to)
      AND (p_tenant IS NULL OR c.tenant = p_tenant)
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
$$;

-- What does not add up between calls, usage and charges. Younger than `p_grace` is not missing yet.
CREATE FUNCTION tcl.usage_gaps(
  p_from timestamptz, p_to timestamptz, p_grace interval, p_tenant text, p_limit integer
)
RETURNS TABLE (
  kind text, tenant text, request_id text, response_id text, calls bigint, at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  (SELECT 'calls_without_usage', g.tenant, g.request_id, g.response_id, count(*), min(g.created_at)
    FROM tcl.call_guard g
    WHERE (p_from IS NULL OR g.created_at >= p_from) AND (p_to IS NULL OR g.created_at < p_to)
      AND g.created_at < clock_timestamp() - p_grace AND (p_tenant IS NULL OR g.tenant = p_tenant)
      AND NOT EXISTS (
        SELECT 1 FROM tcl.usage_fact f
          WHERE f.tenant = g.tenant AND f.request_id = g.request_id
            AND f.response_id = g.response_id)
    GROUP BY g.tenant, g.request_id, g.response_id ORDER BY min(g.created_at) LIMIT p_limit)
  UNION ALL
  (SELECT 'usage_without_calls', f.tenant, f.request_id, f.response_id, 0, f.first_at
    FROM tcl.usage_fact f
    WHERE f.revision = 0
      AND (p_from IS NULL OR f.first_at >= p_from) AND (p_to IS NULL OR f.first_at < p_to)
      AND f.first_at < clock_timestamp() - p_grace AND (p_tenant IS NULL OR f.tenant = p_tenant)
      -- The keys of one request lie between `request:` and `request;` in byte order.
      AND NOT EXISTS (
        SELECT 1 FROM tcl.call_guard g
          WHERE g.tenant = f.tenant AND g.idempotency_key >= f.request_id || ':'
            AND g.idempotency_key < f.request_id || ';' AND g.response_id = f.response_id)
    ORDER BY f.first_at LIMIT p_limit)
  UNION ALL
  (SELECT 'success_without_charge', g.tenant, g.request_id, g.response_id, count(*),
          min(g.finished_at)
    FROM tcl.call_guard g
    WHERE g.state = 'succeeded'
      AND (p_from IS NULL OR g.created_at >= p_from) AND (p_to IS NULL OR g.created_at < p_to)
      AND (p_tenant IS NULL OR g.tenant = p_tenant)
      AND NOT EXISTS (
        SELECT 1 FROM tcl.charge c
          WHERE c.tenant = g.tenant AND c.idempotency_key = g.idempotency_key)
    GROUP BY g.tenant, g.request_id, g.response_id ORDER BY min(g.finished_at) LIMIT p_limit)
$$;

RESET ROLE;
