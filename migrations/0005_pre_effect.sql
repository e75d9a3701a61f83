SET LOCAL ROLE tcl_owner;

-- The point of no return. Refusals (`why`): fenced, cancelled, state:X, deadline, lease_lost,
-- begun_before, approval. `already_begun` is a yes to the one owner that asks twice.
CREATE FUNCTION tcl.begin_effect(
  p_tenant text, p_key text, p_fence bigint, p_lease interval, p_decision text, p_rev text,
  p_need_approval boolean DEFAULT false, p_redrive interval DEFAULT NULL,
  OUT ok boolean, OUT why text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g tcl.call_guard;
  t timestamptz;
  who text;
BEGIN
  SELECT * INTO g FROM tcl.call_guard c
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key FOR UPDATE;
  t := clock_timestamp(); ok := false;
  IF NOT FOUND OR g.fence <> p_fence THEN why := 'fenced'; RETURN; END IF;
  IF g.state NOT IN ('claimed', 'executing') THEN why := 'state:' || g.state; RETURN; END IF;
  IF g.cancel_requested AND g.state = 'claimed' THEN why := 'cancelled'; RETURN; END IF;
  IF g.deadline <= t AND g.state = 'claimed' THEN why := 'deadline'; RETURN; END IF;
  UPDATE tcl.call_active x SET lease_until = t + p_lease
    WHERE x.tenant = p_tenant AND x.idempotency_key = p_key AND x.fence = p_fence
      AND x.lease_until > t
    RETURNING x.owner INTO who;
  IF NOT FOUND THEN why := 'lease_lost'; RETURN; END IF;
  IF g.state = 'executing' THEN ok := true; why := 'already_begun'; RETURN; END IF;
  -- Cannot happen; kept as a last line.
  IF g.begun > 0 AND g.effect IN ('at_most_once', 'reconcilable') THEN
    why := 'begun_before';
    RETURN;
  END IF;
  IF p_need_approval THEN
    UPDATE tcl.call_approval x SET used_fence = p_fence
      WHERE x.tenant = p_tenant AND x.idempotency_key = p_key AND x.args_hash = g.args_hash
        AND x.approved AND x.expires_at > t AND x.used_fence IS NULL;
    IF NOT FOUND THEN why := 'approval'; RETURN; END IF;
  END IF;
  UPDATE tcl.call_guard c SET
      state = 'executing', begun = c.begun + 1, started_at = COALESCE(c.started_at, t),
      decision_id = p_decision, policy_rev = p_rev,
      redrive_until = COALESCE(c.redrive_until, t + p_redrive)
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key RETURNING * INTO g;
  PERFORM tcl.note_change(g, 'claimed', who, p_decision);
  ok := true;
END
$$;

CREATE FUNCTION tcl.renew(p_tenant text, p_key text, p_fence bigint, p_lease interval)
RETURNS timestamptz
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE tcl.call_active SET lease_until = clock_timestamp() + p_lease
    WHERE tenant = p_tenant AND idempotency_key = p_key AND fence = p_fence
      AND lease_until > clock_timestamp()
    RETURNING lease_until
$$;

-- Settle. Result, usage, outbox row and state move in one transaction. A refusal of a `transactional`
-- call raises, because raising rolls back the effect that shares the transaction.
CREATE FUNCTION tcl.finish(
  p_tenant text, p_key text, p_fence bigint, p_outcome tcl.call_state, p_body bytea, p_ref text,
  p_hash bytea, p_error text, p_usage jsonb DEFAULT '[]',
  OUT ok boolean, OUT why text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g tcl.call_guard;
  was tcl.call_state;
  who text;
BEGIN
  SELECT * INTO g FROM tcl.call_guard c
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key FOR UPDATE;
  ok := false; was := g.state;
  IF NOT FOUND OR g.fence <> p_fence THEN
    why := 'fenced';
  ELSIF g.state = p_outcome THEN
    ok := true; why := 'already';
    RETURN;
  ELSIF NOT (
    g.state IN ('executing', 'in_doubt') AND p_outcome IN ('succeeded', 'failed')
    OR g.state = 'claimed' AND p_outcome IN ('denied', 'cancelled', 'failed')
  ) THEN
    why := 'state:' || g.state;
  END IF;
  IF why IS NOT NULL THEN
    IF g.effect = 'transactional' AND p_outcome = 'succeeded' THEN
      RAISE EXCEPTION 'fenced' USING ERRCODE = 'TC001';
    END IF;
    RETURN;
  END IF;
  SELECT x.owner INTO who FROM tcl.call_active x
    WHERE x.tenant = p_tenant AND x.idempotency_key = p_key;

  -- Nothing was begun by this owner, but an earlier start may have taken effect.
  IF g.state = 'claimed' AND g.begun > 0 AND g.effect NOT IN ('read_only', 'transactional') THEN
    UPDATE tcl.call_guard c SET state = 'in_doubt'
      WHERE c.tenant = p_tenant AND c.idempotency_key = p_key RETURNING * INTO g;
    PERFORM tcl.note_change(g, was, who, 'begun_before');
    why := 'in_doubt';
    RETURN;
  END IF;
  UPDATE tcl.call_guard c SET state = p_outcome, finished_at = clock_timestamp()
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key RETURNING * INTO g;
  INSERT INTO tcl.call_result
      (tenant, idempotency_key, fence, outcome, body, body_ref, body_hash, error_class)
    VALUES (p_tenant, p_key, p_fence, p_outcome, p_body, p_ref, p_hash, p_error);
  INSERT INTO tcl.call_usage (tenant, idempotency_key, fence, component, quantity, unit, origin)
    SELECT p_tenant, p_key, p_fence, u ->> 'component', (u ->> 'quantity')::numeric,
           u ->> 'unit', u ->> 'origin'
      FROM jsonb_array_elements(p_usage) u;
  PERFORM tcl.note_change(g, was, who, p_error, p_body);
  ok := true;
END
$$;

-- Give a call back. From executing only when nothing can have happened: the class is safe, or the
-- executor states that the request was never sent (no connection was made; a read time-out is not
-- that). Answers the new state, or NULL when the fence is not ours any more.
CREATE FUNCTION tcl.release(
  p_tenant text, p_key text, p_fence bigint, p_not_sent boolean,
  p_why text DEFAULT NULL, p_delay interval DEFAULT '0'
) RETURNS tcl.call_state
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g tcl.call_guard;
  was tcl.call_state;
  b integer;
  s tcl.call_state;
  who text;
BEGIN
  SELECT * INTO g FROM tcl.call_guard c
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key FOR UPDATE;
  IF NOT FOUND OR g.fence <> p_fence OR g.state NOT IN ('claimed', 'executing') THEN
    RETURN NULL;
  END IF;
  was := g.state;
  SELECT x.owner INTO who FROM tcl.call_active x
    WHERE x.tenant = p_tenant AND x.idempotency_key = p_key;
  b := g.begun - (g.state = 'executing' AND p_not_sent)::int;
  s := CASE
    WHEN b > 0 AND (g.effect IN ('at_most_once', 'reconcilable')
                    OR g.effect = 'idempotent' AND b >= g.max_begun) THEN 'in_doubt'
    WHEN b >= g.max_begun THEN 'failed'
    ELSE 'ready' END;
  UPDATE tcl.call_guard c SET
      state = s, begun = b, finished_at = CASE WHEN s = 'failed' THEN clock_timestamp() END
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key RETURNING * INTO g;
  IF s = 'failed' THEN
    INSERT INTO tcl.call_result (tenant, idempotency_key, fence, outcome, error_class)
      VALUES (p_tenant, p_key, g.fence, s, 'attempts_exhausted');
  END IF;
  PERFORM tcl.note_change(g, was, who, p_why, NULL, p_delay);
  RETURN s;
END
$$;

-- claimed -> held: the policy wants a person to look.
CREATE FUNCTION tcl.hold(p_tenant text, p_key text, p_fence bigint, p_decision text, p_rev text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g tcl.call_guard;
BEGIN
  UPDATE tcl.call_guard c SET state = 'held', decision_id = p_decision, policy_rev = p_rev
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key AND c.fence = p_fence
      AND c.state = 'claimed' RETURNING * INTO g;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM tcl.note_change(g, 'claimed', NULL, p_decision);
  RETURN true;
END
$$;

RESET ROLE;
