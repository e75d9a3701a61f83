SET LOCAL ROLE tcl_owner;

-- held -> ready | denied. The approver names the arguments hash that was shown; an approval is for
-- these arguments, once, and for a limited time.
CREATE FUNCTION tcl.decide(
  p_tenant text, p_key text, p_args_hash bytea, p_approver text, p_yes boolean, p_ttl interval
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g tcl.call_guard;
  t timestamptz;
BEGIN
  SELECT * INTO g FROM tcl.call_guard c
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key FOR UPDATE;
  t := clock_timestamp();
  IF NOT FOUND OR g.state <> 'held' OR g.args_hash <> p_args_hash OR g.deadline <= t THEN
    RETURN false;
  END IF;
  INSERT INTO tcl.call_approval AS x
      (tenant, idempotency_key, args_hash, approver, approved, expires_at, used_fence)
    VALUES (p_tenant, p_key, p_args_hash, p_approver, p_yes, t + p_ttl, NULL)
    ON CONFLICT (tenant, idempotency_key, args_hash) DO UPDATE
      SET approver = excluded.approver, approved = excluded.approved,
          expires_at = excluded.expires_at, used_fence = NULL;
  UPDATE tcl.call_guard c SET
      state = CASE WHEN p_yes THEN 'ready' ELSE 'denied' END::tcl.call_state,
      finished_at = CASE WHEN p_yes THEN NULL ELSE t END
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key RETURNING * INTO g;
  IF NOT p_yes THEN
    INSERT INTO tcl.call_result (tenant, idempotency_key, fence, outcome, error_class)
      VALUES (p_tenant, p_key, g.fence, 'denied', 'approver');
  END IF;
  PERFORM tcl.note_change(g, 'held', p_approver, CASE WHEN p_yes THEN 'approved' ELSE 'approver' END);
  RETURN true;
END
$$;

-- A request only: terminal at once when nobody holds the call and nothing was begun, otherwise a flag
-- that begin_effect honours. Never claims to have stopped a running effect.
CREATE FUNCTION tcl.cancel(p_tenant text, p_key text, p_by text DEFAULT NULL) RETURNS tcl.call_state
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g tcl.call_guard;
  was tcl.call_state;
BEGIN
  SELECT * INTO g FROM tcl.call_guard c
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key FOR UPDATE;
  IF NOT FOUND OR g.finished_at IS NOT NULL THEN
    RETURN g.state;
  END IF;
  was := g.state;
  IF g.state IN ('held', 'ready') AND g.begun = 0 THEN
    UPDATE tcl.call_guard c SET
        cancel_requested = true, state = 'cancelled', finished_at = clock_timestamp()
      WHERE c.tenant = p_tenant AND c.idempotency_key = p_key RETURNING * INTO g;
    INSERT INTO tcl.call_result (tenant, idempotency_key, fence, outcome, error_class)
      VALUES (p_tenant, p_key, g.fence, 'cancelled', 'cancelled');
    PERFORM tcl.note_change(g, was, p_by, 'cancelled');
  ELSIF NOT g.cancel_requested THEN
    UPDATE tcl.call_guard c SET cancel_requested = true
      WHERE c.tenant = p_tenant AND c.idempotency_key = p_key;
    INSERT INTO tcl.call_history (tenant, idempotency_key, from_state, to_state, fence, by, why)
      VALUES (p_tenant, p_key, was, was, g.fence, p_by, 'cancel_requested');
  END IF;
  RETURN g.state;
END
$$;

-- A reconciler or a person settles in_doubt. `ready` means proven that nothing happened and that the
-- lost owner is gone (its process or host, not only its lease). The fence rises, so the lost owner
-- cannot settle afterwards. The reason is a person's own sentence and stands in the history.
CREATE FUNCTION tcl.resolve(
  p_tenant text, p_key text, p_seen_fence bigint, p_to tcl.call_state, p_by text,
  p_body bytea DEFAULT NULL, p_reason text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  g tcl.call_guard;
BEGIN
  IF p_to NOT IN ('succeeded', 'failed', 'ready') THEN
    RETURN false;
  END IF;
  UPDATE tcl.call_guard c SET
      state = p_to, fence = tcl.next_fence(),
      begun = CASE WHEN p_to = 'ready' THEN 0 ELSE c.begun END,
      finished_at = CASE WHEN p_to = 'ready' THEN NULL ELSE clock_timestamp() END
    WHERE c.tenant = p_tenant AND c.idempotency_key = p_key AND c.state = 'in_doubt'
      AND c.fence = p_seen_fence RETURNING * INTO g;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF p_to <> 'ready' THEN
    INSERT INTO tcl.call_result (tenant, idempotency_key, fence, outcome, body, body_hash, error_class)
      VALUES (p_tenant, p_key, g.fence, p_to, p_body, sha256(p_body), 'resolved_by:' || p_by);
  END IF;
  PERFORM tcl.note_change(g, 'in_doubt', p_by, 'resolved' || COALESCE(': ' || left(p_reason, 200), ''), p_body);
  RETURN true;
END
$$;

RESET ROLE;
